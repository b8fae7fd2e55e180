/* fake_order.cpp - see fake_order.h. */
#include "fake_order.h"

#include <algorithm>
#include <deque>
#include <map>
#include <stdint.h>
#include <stdio.h>

struct access {
    uintptr_t begin, end;
    int stream;
    unsigned long long at; /* clock of the stream */
    bool writes;
};

/* Number of newest ranges kept; for an address named by a kernel, the last access of each stream suffices. */
enum { RANGES = 1024 };
static fake_clock clock_of[FAKE_ORDER_STREAMS];
static thread_local fake_clock host; /* per thread: a wait of one thread is no news to the rest */
static std::deque<access> ranges;
static std::map<uintptr_t, access> points[2]; /* read, written: by the compute stream, which alone runs kernels */
static int current, faults;
static char first[256];

static void meet(fake_clock *c, const fake_clock &other) {
    for (int i = 0; i < FAKE_ORDER_STREAMS; i++) c->at[i] = std::max(c->at[i], other.at[i]);
}

void fake_order_reset(void) {
    for (fake_clock &c : clock_of) c = {};
    host = {};
    ranges.clear();
    points[0].clear();
    points[1].clear();
    faults = 0;
    first[0] = '\0';
}

void fake_order_begin(int stream) {
    current = stream;
    meet(&clock_of[stream], host);
    clock_of[stream].at[stream]++;
}

static void compare(const access &before, const access &now) {
    if (!before.writes && !now.writes) return;
    if (before.end <= now.begin || now.end <= before.begin) return;
    if (clock_of[now.stream].at[before.stream] >= before.at) return;
    if (faults++ == 0)
        snprintf(first, sizeof first, "stream %d %s at %p what stream %d %s, and does not follow it", now.stream,
                 now.writes ? "writes" : "reads", (void *)std::max(before.begin, now.begin), before.stream,
                 before.writes ? "writes" : "reads");
}

void fake_order_access(const void *p, size_t bytes, bool writes) {
    const uintptr_t at = (uintptr_t)p;
    const access now = {at, at + bytes, current, clock_of[current].at[current], writes};
    if (p == NULL || bytes == 0) return;
    for (const access &a : ranges) compare(a, now);
    if (bytes == 1) { /* a kernel's operand */
        points[writes][at] = now;
        return;
    }
    for (const auto &of : points)
        for (auto i = of.lower_bound(now.begin); i != of.end() && i->first < now.end; ++i) compare(i->second, now);
    ranges.push_back(now);
    if (ranges.size() > RANGES) ranges.pop_front();
}

fake_clock fake_order_mark(int stream) {
    meet(&clock_of[stream], host);
    return clock_of[stream];
}

void fake_order_follow(int stream, const fake_clock *event) {
    meet(&clock_of[stream], *event);
}

void fake_order_host(const fake_clock *event) {
    meet(&host, *event);
}

int fake_order_faults(void) {
    return faults;
}

const char *fake_order_first(void) {
    return first;
}
