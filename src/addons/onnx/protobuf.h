/* protobuf.h - ONNX's messages, and the library that reads and writes them: it is loaded when a file is.
 *
 * Names of function pointers, set when libprotobuf-c is loaded: the code that protoc-c makes calls these names. */
#ifndef FRI_ONNX_PROTOBUF_H
#define FRI_ONNX_PROTOBUF_H

#include "addons/onnx/protobuf_names.h"

#include <frugal/base.h>
#include <onnx.pb-c.h>

/* FR_EUNSUPPORTED names the package. Load before calling the library. */
fr_status fri_onnx_protobuf_load(void);

#endif
