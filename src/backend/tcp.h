/* tcp.h - an engine that needs no library: for launchers that bring none, as torchrun. */
#ifndef FRI_BACKEND_TCP_H
#define FRI_BACKEND_TCP_H

#include "backend/launcher.h"

#include <frugal/engine.h>

/* Meets the other ranks: rank 0 is at MASTER_ADDR, on one of a few ports behind MASTER_PORT, which is the launcher's
 * own. FR_EPEER: they have not met within `seconds`; `reason` holds a sentence without a full stop. */
fr_status fri_tcp_open(const fri_launcher *l, double seconds, fr_engine *out, char *reason, size_t bytes);

#endif
