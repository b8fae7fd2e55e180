/* protobuf_names.h - new names for libprotobuf-c's functions, implemented by protobuf.c; included before
 * libprotobuf-c's header. */
#ifndef FRI_ONNX_PROTOBUF_NAMES_H
#define FRI_ONNX_PROTOBUF_NAMES_H

#define protobuf_c_message_unpack               fri_onnx_message_unpack
#define protobuf_c_message_free_unpacked        fri_onnx_message_free_unpacked
#define protobuf_c_message_get_packed_size      fri_onnx_message_get_packed_size
#define protobuf_c_message_pack                 fri_onnx_message_pack
#define protobuf_c_message_pack_to_buffer       fri_onnx_message_pack_to_buffer
#define protobuf_c_message_descriptor_get_field fri_onnx_message_descriptor_get_field

#endif
