/* thread.c - see thread.h. */
#include "base/thread.h"

_Thread_local fri_thread fri_here = {.op = "", .module = ""};
