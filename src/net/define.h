/* define.h - the part of a definition that the layer calls (define_layers.c) use. */
#ifndef FRI_NET_DEFINE_H
#define FRI_NET_DEFINE_H

#include "net/list.h"

fr_device fri_net_device(const fr_net *n);
fr_net_init_rule fri_net_rule(const fr_net *n);

#endif
