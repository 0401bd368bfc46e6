// Sends and receives numbered datagrams with time stamps, and reports what a queue did to them.
// Sender and receiver read the clock of one kernel. Sizes are those of IPv4 packets.
//
//   datagrams send HOST PORT PER_SECOND COUNT SIZE [ect]   PER_SECOND 0: back to back; ect: ECT(0)
//   datagrams receive PORT PER_SECOND COUNT WINDOW_S       ends 3 s after the last datagram
//
// The receiver prints one figure a line: name, unit, value. Lost datagrams belong to the window in
// which they were due.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

enum { HEADERS = 28, LARGEST = 1500, WINDOWS = 16 };

struct stamp {
    uint64_t number;
    int64_t sent_ns;
};

struct arrival {
    uint64_t number;
    int64_t sent_ns, received_ns;
    int marked, bytes;
};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int64_t nanoseconds(const struct timespec *t) {
    return t->tv_sec * 1000000000LL + t->tv_nsec;
}

static int64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return nanoseconds(&t);
}

static struct sockaddr_in address(const char *host, const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) fail(host);
    return to;
}

static void set(int s, int level, int option, int value) {
    if (setsockopt(s, level, option, &value, sizeof value) != 0) fail("setsockopt");
}

static int send_all(const struct sockaddr_in *to, double per_second, uint64_t count, int size, int ect) {
    char payload[LARGEST] = {0};
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    if (size < HEADERS + (int)sizeof(struct stamp) || size > LARGEST) fail("size");
    set(s, SOL_SOCKET, SO_SNDBUFFORCE, 1 << 24);
    set(s, IPPROTO_IP, IP_TOS, ect ? 2 : 0);
    if (connect(s, (const struct sockaddr *)to, sizeof *to) != 0) fail("connect");
    prctl(PR_SET_TIMERSLACK, 1);
    int64_t start = now(CLOCK_MONOTONIC);
    for (uint64_t n = 0; n < count; n++) {
        if (per_second > 0) {
            int64_t due = start + (int64_t)((double)n * 1e9 / per_second);
            struct timespec t = {due / 1000000000, due % 1000000000};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        }
        struct stamp stamp = {n, now(CLOCK_REALTIME)};
        memcpy(payload, &stamp, sizeof stamp);
        if (send(s, payload, size - HEADERS, 0) < 0) fail("send");
    }
    return 0;
}

// Reads one datagram. The kernel's time stamp is that of the arrival at the interface.
static int read_one(int s, struct arrival *arrival) {
    char payload[LARGEST], control[256];
    struct iovec part = {payload, sizeof payload};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t bytes = recvmsg(s, &message, 0);
    if (bytes < (ssize_t)sizeof(struct stamp)) return 0;
    struct stamp stamp;
    memcpy(&stamp, payload, sizeof stamp);
    *arrival = (struct arrival){.number = stamp.number, .sent_ns = stamp.sent_ns,
                                .received_ns = now(CLOCK_REALTIME), .bytes = bytes + HEADERS};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(c), sizeof t);
            arrival->received_ns = nanoseconds(&t);
        }
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
            arrival->marked = (*(uint8_t *)CMSG_DATA(c) & 3) == 3;
    }
    return 1;
}

static size_t receive_all(const char *port, struct arrival *arrivals, size_t limit) {
    struct sockaddr_in here = address("0.0.0.0", port);
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    set(s, SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26);
    set(s, SOL_SOCKET, SO_TIMESTAMPNS, 1);
    set(s, IPPROTO_IP, IP_RECVTOS, 1);
    if (bind(s, (struct sockaddr *)&here, sizeof here) != 0) fail("bind");
    size_t n = 0;
    for (; n < limit; n++) {
        struct timeval wait = {n == 0 ? 20 : 3, 0};
        setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        if (!read_one(s, &arrivals[n])) break;
    }
    return n;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double delay_ms(const struct arrival *a) {
    return (a->received_ns - a->sent_ns) / 1e6;
}

static void report_delays(const struct arrival *arrivals, size_t n) {
    static const struct { const char *name; double share; } QUANTILES[] = {
        {"delay p5", 0.05}, {"delay p25", 0.25}, {"delay p50", 0.5}, {"delay p75", 0.75},
        {"delay p95", 0.95}, {"delay p99", 0.99}, {"delay max", 1}};
    double *delays = calloc(n, sizeof *delays), sum = 0;
    for (size_t i = 0; i < n; i++) sum += delays[i] = delay_ms(&arrivals[i]);
    qsort(delays, n, sizeof *delays, compare);
    printf("delay mean\tms\t%.3f\n", sum / n);
    for (size_t q = 0; q < sizeof QUANTILES / sizeof *QUANTILES; q++)
        printf("%s\tms\t%.3f\n", QUANTILES[q].name, delays[(size_t)(QUANTILES[q].share * (n - 1))]);
    free(delays);
}

// Reports losses and delay by the time at which the datagrams were due.
static void report_windows(const struct arrival *arrivals, size_t n, const uint8_t *seen, size_t count,
                           double per_second, double window_s) {
    double due[WINDOWS] = {0}, got[WINDOWS] = {0}, copies[WINDOWS] = {0}, sum[WINDOWS] = {0};
    double each = per_second * window_s;
    if (each <= 0 || count / each > WINDOWS) return;
    for (size_t i = 0; i < count; i++) {
        due[(int)(i / each)]++;
        got[(int)(i / each)] += seen[i];
    }
    for (size_t i = 0; i < n; i++) {
        copies[(int)(arrivals[i].number / each)]++;
        sum[(int)(arrivals[i].number / each)] += delay_ms(&arrivals[i]);
    }
    for (int w = 0; w < WINDOWS && due[w] > 0; w++) {
        printf("lost %g-%g s\t%%\t%.3f\n", w * window_s, (w + 1) * window_s, 100 * (1 - got[w] / due[w]));
        if (copies[w] > 0)
            printf("delay mean %g-%g s\tms\t%.3f\n", w * window_s, (w + 1) * window_s, sum[w] / copies[w]);
    }
}

// Reports groups of arrivals less than 0.2 ms apart: a burst that passed at once, or a slot.
static void report_bursts(const struct arrival *arrivals, size_t n) {
    size_t first = 0, groups = 1;
    double gaps_ms = 0;
    for (size_t i = 1; i < n; i++) {
        double gap_ms = (arrivals[i].received_ns - arrivals[i - 1].received_ns) / 1e6;
        if (gap_ms < 0.2) continue;
        if (first == 0) first = i;
        groups++;
        gaps_ms += gap_ms;
    }
    printf("passed at once\tpackets\t%zu\n", first == 0 ? n : first);
    printf("packets per group\tpackets\t%.3f\n", (double)n / groups);
    if (groups > 1) printf("gap between groups\tms\t%.3f\n", gaps_ms / (groups - 1));
    if (first > 0 && first + 1 < n)
        printf("rate after burst\tMbit/s\t%.4f\n", (n - 1 - first) * arrivals[n - 1].bytes * 8e3 /
               (double)(arrivals[n - 1].received_ns - arrivals[first].received_ns));
}

static int receive(const char *port, double per_second, size_t count, double window_s) {
    size_t limit = 3 * count + 16, distinct = 0, reordered = 0, marked = 0;
    struct arrival *arrivals = calloc(limit, sizeof *arrivals);
    uint8_t *seen = calloc(count, 1);
    size_t n = receive_all(port, arrivals, limit);
    if (n < 2) return fprintf(stderr, "datagrams: %zu received\n", n), 1;
    uint64_t highest = 0;
    int64_t sent = 0, last_sent = 0;
    for (size_t i = 0; i < n; i++) {
        const struct arrival *a = &arrivals[i];
        if (a->number >= count) return fprintf(stderr, "datagrams: number %zu\n", (size_t)a->number), 1;
        // RFC 4737, 3.3: a packet is reordered if one sent later arrived earlier. Copies do not count.
        if (!seen[a->number]) distinct++, reordered += a->number < highest;
        seen[a->number] = 1;
        marked += a->marked;
        if (a->number >= highest) highest = a->number, last_sent = a->sent_ns;
        if (a->number == 0) sent = a->sent_ns;
    }
    double span_ns = arrivals[n - 1].received_ns - arrivals[0].received_ns;
    size_t early = 0;
    while (early < n && arrivals[early].received_ns <= last_sent) early++;
    printf("lost\t%%\t%.3f\n", 100.0 * (count - distinct) / count);
    printf("duplicated\t%%\t%.3f\n", 100.0 * (n - distinct) / count);
    printf("reordered\t%%\t%.3f\n", 100.0 * reordered / distinct);
    printf("marked\t%%\t%.3f\n", 100.0 * marked / n);
    printf("received rate\tMbit/s\t%.4f\n", (n - 1) * arrivals[0].bytes * 8e3 / span_ns);
    if (early > 1)
        printf("received rate while sending\tMbit/s\t%.4f\n",
               (early - 1) * arrivals[0].bytes * 8e3 / (double)(last_sent - arrivals[0].received_ns));
    if (sent > 0 && highest > 0)
        printf("sent rate\tMbit/s\t%.4f\n", highest * arrivals[0].bytes * 8e3 / (double)(last_sent - sent));
    report_delays(arrivals, n);
    report_windows(arrivals, n, seen, count, per_second, window_s);
    report_bursts(arrivals, n);
    return 0;
}

int main(int argc, char **argv) {
    if (argc >= 7 && strcmp(argv[1], "send") == 0) {
        struct sockaddr_in to = address(argv[2], argv[3]);
        return send_all(&to, atof(argv[4]), strtoull(argv[5], NULL, 10), atoi(argv[6]), argc > 7);
    }
    if (argc == 6 && strcmp(argv[1], "receive") == 0)
        return receive(argv[2], atof(argv[3]), strtoull(argv[4], NULL, 10), atof(argv[5]));
    fprintf(stderr, "usage: datagrams send HOST PORT PER_SECOND COUNT SIZE [ect]\n"
                    "       datagrams receive PORT PER_SECOND COUNT WINDOW_S\n");
    return 2;
}
