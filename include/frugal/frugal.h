/* frugal.h - all headers of the library, without the trainer's (train.h), a separate library. */
#ifndef FRUGAL_H
#define FRUGAL_H

#include <frugal/autograd.h>
#include <frugal/base.h>
#include <frugal/data.h>
#include <frugal/dlpack.h>
#include <frugal/extend.h>
#include <frugal/fit.h>
#include <frugal/io.h>
#include <frugal/memory.h>
#include <frugal/ops.h>
#include <frugal/models.h>
#include <frugal/net.h>
#include <frugal/nn.h>
#include <frugal/optim.h>
#include <frugal/plan.h>
#include <frugal/tensor.h>

#endif
