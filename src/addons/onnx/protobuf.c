/* protobuf.c - see protobuf.h. */
#include "addons/onnx/protobuf.h"

#include <frugal/addon.h>

static const char *const names[] = {
    "protobuf_c_message_unpack", "protobuf_c_message_free_unpacked",  "protobuf_c_message_get_packed_size",
    "protobuf_c_message_pack",   "protobuf_c_message_pack_to_buffer", "protobuf_c_message_descriptor_get_field",
};
enum { FUNCTIONS = sizeof names / sizeof *names };
static union {
    void *function[FUNCTIONS];
    struct {
        __typeof__(fri_onnx_message_unpack) *unpack;
        __typeof__(fri_onnx_message_free_unpacked) *free_unpacked;
        __typeof__(fri_onnx_message_get_packed_size) *get_packed_size;
        __typeof__(fri_onnx_message_pack) *pack;
        __typeof__(fri_onnx_message_pack_to_buffer) *pack_to_buffer;
        __typeof__(fri_onnx_message_descriptor_get_field) *descriptor_get_field;
    } call;
} library;

fr_status fri_onnx_protobuf_load(void) {
    return fr_library_load("libprotobuf-c.so.1", "libprotobuf-c1", names, library.function, FUNCTIONS);
}

ProtobufCMessage *fri_onnx_message_unpack(const ProtobufCMessageDescriptor *descriptor, ProtobufCAllocator *allocator,
                                          size_t n, const uint8_t *data) {
    return library.call.unpack(descriptor, allocator, n, data);
}

void fri_onnx_message_free_unpacked(ProtobufCMessage *message, ProtobufCAllocator *allocator) {
    library.call.free_unpacked(message, allocator);
}

size_t fri_onnx_message_get_packed_size(const ProtobufCMessage *message) {
    return library.call.get_packed_size(message);
}

size_t fri_onnx_message_pack(const ProtobufCMessage *message, uint8_t *out) {
    return library.call.pack(message, out);
}

size_t fri_onnx_message_pack_to_buffer(const ProtobufCMessage *message, ProtobufCBuffer *buffer) {
    return library.call.pack_to_buffer(message, buffer);
}

const ProtobufCFieldDescriptor *fri_onnx_message_descriptor_get_field(const ProtobufCMessageDescriptor *descriptor,
                                                                      unsigned value) {
    return library.call.descriptor_get_field(descriptor, value);
}
