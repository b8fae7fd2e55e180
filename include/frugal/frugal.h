/* frugal.h - the library's headers for tensors, networks, training, data and files.
 *
 * Programs include further headers by name: session.h (a training run as an object), train.h (a trainer with a command
 * line, in the library frugal-cli), and the headers of tools.h and of add-ons. */
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
