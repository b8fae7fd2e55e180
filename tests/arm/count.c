/* count.c - plugin for qemu-user: prints the number of instructions that a program executed.
 *
 *   cc -shared -fPIC -O2 count.c -o count.so && qemu-aarch64 -plugin ./count.so -L ROOT PROGRAM
 *
 * The call prctl(0x46525547) in the program is a mark. At every second mark the plugin appends to the file $COUNT_OUT
 * the number of instructions since the mark before. qemu increments the counter of each translated block without atomic
 * operations, so the number is exact for programs of one thread. Debian has no package of qemu-plugin.h; the functions
 * used here are declared below (API 1, qemu 7.2 and later). */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint64_t plugin_id;
typedef struct qemu_plugin_tb qemu_plugin_tb;
typedef void on_translation(plugin_id, qemu_plugin_tb *);
typedef void on_call(plugin_id, unsigned cpu, int64_t call, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                     uint64_t, uint64_t);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, on_translation *);
void qemu_plugin_register_vcpu_tb_exec_inline(qemu_plugin_tb *, int op, void *counter, uint64_t value);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, on_call *);
size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb *);
__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static uint64_t executed;

/* Adds the block's number of instructions to `executed` each time the block runs. */
static void count_block(plugin_id id, qemu_plugin_tb *block) {
    enum { ADD = 0 };
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, &executed, qemu_plugin_tb_n_insns(block));
}

static void look_for_mark(plugin_id id, unsigned cpu, int64_t call, uint64_t first, uint64_t b, uint64_t c, uint64_t d,
                          uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    enum { PRCTL = 167, MARK = 0x46525547 }; /* the number of the system call on 64-bit Arm */
    static uint64_t before;
    static bool started;
    (void)id, (void)cpu, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (call != PRCTL || first != MARK) return;
    if (started) {
        const char *path = getenv("COUNT_OUT");
        FILE *file = path != NULL ? fopen(path, "a") : NULL;
        if (file == NULL) {
            fprintf(stderr, "count: set COUNT_OUT to a file that can be written\n");
            exit(1);
        }
        fprintf(file, "%" PRIu64 "\n", executed - before);
        fclose(file);
    }
    before = executed;
    started = !started;
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, count_block);
    qemu_plugin_register_vcpu_syscall_cb(id, look_for_mark);
    return 0;
}
