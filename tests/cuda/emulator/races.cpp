/* races.cpp - see races.h.
 *
 * A cell per access of up to four bytes, at its first byte: the last writer and the readers since, each with block,
 * thread and barriers. Two accesses of a block are ordered if a single thread made both, or if a barrier of the
 * block, or of a warp with both threads, lies between. Threads of two blocks are ordered by fences and atomic
 * exchanges alone (races.h); shared memory is each block's own. Exchanges between lanes order nothing.
 *
 * Lanes of a warp that reach an instruction for the n-th time since their last barrier access shared memory together,
 * 128 bytes at once. */
#include "races.h"

#include <dlfcn.h>
#include <memory>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unordered_map>

enum { PAGE = 4096, STEP = 4, WARP = 32, THREADS = 256, BANKS = 32, MOST_WORDS = 2, MANY = -1, NOBODY = -2 };

struct access {
    int block, thread, warp; /* of several threads: MANY, and where they differ block and warp likewise */
    unsigned block_epoch, warp_epoch;
    const void *pc;
};

struct cell {
    unsigned launch = 0;
    access write, read;
};

typedef std::unique_ptr<cell[]> page;

fri_race_place fri_race_thread;
static std::unordered_map<uintptr_t, page> pages;
static unsigned launch;
static int block;
static bool inside;
static uintptr_t own[2][2];
static char found[512];

/* Static memory of the program, the place of __shared__. */
extern "C" char __data_start, _end;

static bool is_shared(uintptr_t at) {
    return at >= (uintptr_t)&__data_start && at < (uintptr_t)&_end;
}

/* ---- orders between blocks ------------------------------------------------------------------------------------- */

/* A thread's fence or exchange, and the barriers before it. */
struct event {
    const void *at;
    int block, thread;
    unsigned epoch;
};

static event fenced, exchanged, acquired; /* the last ones of the launch; the exchange seen behind its fence */
static std::unordered_map<const void *, std::unordered_map<int, unsigned>> released; /* address, block: epoch */

void __threadfence() {
    fenced = {NULL, block, fri_race_thread.thread, fri_race_thread.block_epoch};
    if (exchanged.at == NULL || exchanged.block != block || exchanged.thread != fenced.thread) return;
    acquired = {exchanged.at, block, fenced.thread, fenced.epoch};
}

void emulate_atomic(const void *at) {
    exchanged = {at, block, fri_race_thread.thread, fri_race_thread.block_epoch};
    if (fenced.block == block && fenced.thread == exchanged.thread) released[at][block] = fenced.epoch;
}

static bool blocks_are_ordered(const access &before, const access &now) {
    if (acquired.block != now.block) return false;
    if (now.thread != acquired.thread && now.block_epoch <= acquired.epoch) return false;
    const auto &all = released[acquired.at];
    const auto other = all.find(before.block);
    return other != all.end() && before.block_epoch < other->second;
}

void fri_race_launch(const void *stacks, size_t stack_bytes, const void *index, size_t index_bytes) {
    own[0][0] = (uintptr_t)stacks;
    own[0][1] = (uintptr_t)stacks + stack_bytes;
    own[1][0] = (uintptr_t)index;
    own[1][1] = (uintptr_t)index + index_bytes;
    fenced.block = exchanged.block = acquired.block = NOBODY;
    released.clear();
    launch++;
    inside = true;
}

void fri_race_block(int b) {
    block = b;
}

void fri_race_end(void) {
    inside = false;
}

const char *fri_race_found(void) {
    static char last[sizeof found];
    snprintf(last, sizeof last, "%s", found);
    found[0] = '\0';
    return last;
}

/* Address for addr2line -e PROGRAM. */
static size_t place_of(const void *pc) {
    Dl_info info;
    return pc != NULL && dladdr(pc, &info) != 0 ? (size_t)((const char *)pc - (const char *)info.dli_fbase) : 0;
}

static void report(const access &before, const access &now, const char *did, const char *does) {
    if (found[0] != '\0') return;
    snprintf(found, sizeof found,
             "thread %d of block %d %s what thread %d of block %d %s without a barrier between (-1: several; "
             "addr2line: 0x%zx, "
             "0x%zx)",
             before.thread, before.block, did, now.thread, now.block, does, place_of(before.pc), place_of(now.pc));
}

static bool is_ordered(const access &before, const access &now) {
    if (before.thread == NOBODY) return true;
    if (before.block != now.block) return blocks_are_ordered(before, now);
    return before.thread == now.thread || before.block_epoch < now.block_epoch ||
           (before.warp == now.warp && before.warp_epoch < now.warp_epoch);
}

static cell *cell_of(uintptr_t at, bool shared) {
    static uintptr_t last;
    static cell *cells;
    if (cells == nullptr || at / PAGE != last) {
        page &p = pages[at / PAGE];
        if (p == nullptr) p.reset(new cell[PAGE]);
        last = at / PAGE;
        cells = p.get();
    }
    cell *c = &cells[at % PAGE];
    const bool another_block = shared && c->launch == launch && c->write.block != block && c->write.thread != NOBODY;
    if (c->launch != launch || another_block) {
        c->launch = launch;
        c->write.thread = c->read.thread = NOBODY;
    }
    return c;
}

static void on_read(cell *c, const access &now, bool shared) {
    if (shared && c->write.thread == NOBODY && found[0] == '\0')
        snprintf(found, sizeof found,
                 "thread %d of block %d reads shared memory that its block has not written "
                 "(addr2line: 0x%zx)",
                 now.thread, now.block, place_of(now.pc));
    if (!is_ordered(c->write, now)) report(c->write, now, "wrote", "reads");
    if (is_ordered(c->read, now)) {
        c->read = now;
        return;
    }
    access &all = c->read;
    all.thread = MANY;
    if (all.block != now.block) all.block = MANY;
    if (all.warp != now.warp) all.warp = MANY;
    all.block_epoch = now.block_epoch;
    all.warp_epoch = now.warp_epoch;
}

static void on_write(cell *c, const access &now) {
    if (!is_ordered(c->write, now)) report(c->write, now, "wrote", "writes");
    if (!is_ordered(c->read, now)) report(c->read, now, "read", "writes");
    c->write = now;
    c->read.thread = NOBODY;
}

/* ---- banks of shared memory ---------------------------------------------------------------------------------- */

bool fri_race_banks = true;

/* A period lies between two barriers of a block, or of a warp. */
struct period {
    unsigned launch, block_epoch, warp_epoch;
    int block;
    bool operator!=(const period &o) const {
        return memcmp(this, &o, sizeof o) != 0;
    }
};

/* The words of an access, at each bank. */
struct words {
    period in;
    uint8_t count[BANKS];
    uintptr_t word[BANKS][MOST_WORDS];
};

/* How often a thread was here. */
struct visits {
    period in;
    unsigned count;
};

static std::unordered_map<const void *, visits> visited[THREADS];
static std::unordered_map<uint64_t, words> accessed[THREADS / WARP];

static void on_banks(uintptr_t at, size_t bytes, const access &now) {
    const period in = {launch, now.block_epoch, now.warp_epoch, block};
    visits &v = visited[now.thread][now.pc];
    if (v.in != in) v = {in, 0};
    const unsigned lanes = bytes > STEP ? WARP * STEP / (unsigned)bytes : WARP;
    const uint64_t part = v.count++ * WARP + (unsigned)(now.thread % WARP) / lanes;
    words &w = accessed[now.warp][part << 48 ^ (uintptr_t)now.pc ^ part >> 16];
    if (w.in != in) w = {in, {}, {}};
    for (uintptr_t word = at / STEP; word <= (at + bytes - 1) / STEP; word++) {
        const size_t bank = word % BANKS;
        int i = 0;
        while (i < w.count[bank] && w.word[bank][i] != word) i++;
        if (i < w.count[bank]) continue;
        if (i < MOST_WORDS) w.word[bank][w.count[bank]++] = word;
        if (i < MOST_WORDS || found[0] != '\0') continue;
        snprintf(found, sizeof found,
                 "lanes of warp %d of block %d access more than %d words of a bank at once (addr2line: 0x%zx)",
                 now.warp, block, MOST_WORDS, place_of(now.pc));
    }
}

static void touch(const void *p, size_t bytes, bool writes, const void *pc) {
    const uintptr_t at = (uintptr_t)p;
    if (!inside || (at >= own[0][0] && at < own[0][1]) || (at >= own[1][0] && at < own[1][1])) return;
    const fri_race_place t = fri_race_thread;
    const access now = {block, t.thread, t.thread / WARP, t.block_epoch, t.warp_epoch, pc};
    const bool shared = is_shared(at);
    if (shared && fri_race_banks) on_banks(at, bytes, now);
    for (size_t i = 0; i < bytes; i += STEP)
        if (writes)
            on_write(cell_of(at + i, shared), now);
        else
            on_read(cell_of(at + i, shared), now, shared);
}

/* ---- functions called by the compiler ------------------------------------------------------------------------ */

#define PC __builtin_return_address(0)
#define ACCESS(n)                                       \
    extern "C" void __tsan_read##n(void *p);            \
    extern "C" void __tsan_write##n(void *p);           \
    extern "C" void __tsan_unaligned_read##n(void *p);  \
    extern "C" void __tsan_unaligned_write##n(void *p); \
    void __tsan_read##n(void *p) {                      \
        touch(p, n, false, PC);                         \
    }                                                   \
    void __tsan_write##n(void *p) {                     \
        touch(p, n, true, PC);                          \
    }                                                   \
    void __tsan_unaligned_read##n(void *p) {            \
        touch(p, n, false, PC);                         \
    }                                                   \
    void __tsan_unaligned_write##n(void *p) {           \
        touch(p, n, true, PC);                          \
    }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

extern "C" void __tsan_read_range(void *p, size_t bytes);
extern "C" void __tsan_write_range(void *p, size_t bytes);
extern "C" void __tsan_func_entry(void *pc);
extern "C" void __tsan_func_exit(void);
extern "C" void __tsan_vptr_update(void **at, void *value);
extern "C" void __tsan_init(void);

void __tsan_read_range(void *p, size_t bytes) {
    touch(p, bytes, false, PC);
}
void __tsan_write_range(void *p, size_t bytes) {
    touch(p, bytes, true, PC);
}
void __tsan_func_entry(void *) {
}
void __tsan_func_exit(void) {
}
void __tsan_vptr_update(void **, void *) {
}
void __tsan_init(void) {
}
