/* message.c - the bytes of an ONNX file as a protobuf message.
 *
 * The parser recurses for nested messages without a limit, so deeper nesting than any network's is refused first. */
#include "addons/onnx/reader.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DEEPEST = 32, MOST_BYTES = INT32_MAX }; /* protobuf's own limit */

typedef struct bytes {
    const uint8_t *at, *end;
} bytes;

static bool varint(bytes *b, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && b->at < b->end; shift += 7) {
        const uint8_t c = *b->at++;
        *out |= (uint64_t)(c & 127) << shift;
        if (c < 128) return true;
    }
    return false;
}

/* True if messages nest at most `deeper` levels, and no text holds a NUL. Skips
 * fields outside the schema, as the parser does. */
static bool is_sound(bytes b, const ProtobufCMessageDescriptor *d, int deeper) {
    while (b.at < b.end) {
        uint64_t key = 0, n = 0;
        if (!varint(&b, &key)) return true; /* the parser says so */
        const ProtobufCFieldDescriptor *f =
            key >> 3 <= UINT32_MAX ? protobuf_c_message_descriptor_get_field(d, (unsigned)(key >> 3)) : NULL;
        switch (key & 7) {
        case 0:
            if (!varint(&b, &n)) return true;
            n = 0;
            break;
        case 1: n = 8; break;
        case 2:
            if (!varint(&b, &n)) return true;
            break;
        case 5: n = 4; break;
        default: return true;
        }
        if (n > (uint64_t)(b.end - b.at)) return true;
        if ((key & 7) == 2 && f != NULL && f->type == PROTOBUF_C_TYPE_STRING && memchr(b.at, 0, (size_t)n) != NULL)
            return false;
        if ((key & 7) == 2 && f != NULL && f->type == PROTOBUF_C_TYPE_MESSAGE &&
            (deeper == 0 || !is_sound((bytes){b.at, b.at + n}, f->descriptor, deeper - 1)))
            return false;
        b.at += n;
    }
    return true;
}

fr_status fri_onnx_message_parse(const uint8_t *data, size_t n, Onnx__ModelProto **model) {
    if (n == 0) return fr_fail(FR_EFORMAT, "it is empty");
    if (n > MOST_BYTES) return fr_fail(FR_EFORMAT, "it has %zu bytes; a message of protobuf has fewer than 2 GiB", n);
    if (!is_sound((bytes){data, data + n}, &onnx__model_proto__descriptor, DEEPEST))
        return fr_fail(FR_EFORMAT, "its messages nest deeper than %d, or a text in it holds a NUL", DEEPEST);
    *model = onnx__model_proto__unpack(NULL, n, data);
    return *model != NULL ? FR_OK : fr_fail(FR_EFORMAT, "its %zu bytes are no ONNX model, or it is damaged", n);
}

fr_status fri_onnx_message_read(const char *path, Onnx__ModelProto **model) {
    void *data = MAP_FAILED;
    uint64_t size = 0;
    int fd = -1;
    fr_status s = FR_OK;
    FR_TRY(s, fr_file_open(path, &fd, &size));
    if (size == 0) FR_TRY(s, fr_fail(FR_EFORMAT, "it is empty"));
    data = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) FR_TRY(s, fr_fail(FR_EIO, "cannot be mapped: %s", strerror(errno)));
    FR_TRY(s, fri_onnx_message_parse(data, (size_t)size, model));
done:
    if (data != MAP_FAILED) (void)munmap(data, (size_t)size);
    if (fd >= 0) (void)close(fd);
    return s;
}
