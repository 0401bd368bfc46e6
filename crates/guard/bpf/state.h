/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * State that the programs share with the guard, and the windows of connections that start.
 */
#ifndef GUARD_STATE_H
#define GUARD_STATE_H

#include "kernel.h"

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
/* Connections at a time; further ones are counted and left alone. */
#define MAX_CONNECTIONS 65536
/* Age of a heartbeat after which windows are lifted. */
#define HEARTBEAT_TIMEOUT_NS 1000000000ULL
/* Pause after which a connection starts anew: two ticks. (TICK in control::path_control) */
#define PAUSE_NS 20000000ULL
/* Payload of a full segment of a connection that is not established. (MTU 1500, IPv4) */
#define DEFAULT_MSS 1460
/* Largest first window in segments. (RFC 6928: senders start with ten) */
#define MAX_FIRST_SEGMENTS 10
#define US_PER_SECOND 1000000ULL
#define NS_PER_US 1000ULL

#define PASSIVE 1   /* accepted by this host */
#define FORWARDED 2 /* that of a guest */
#define OWN 4       /* of bankfull, whose tuner sets the window */

/* Order for a connection that is left alone. */
#define LEFT_ALONE (~0U)

/* State of one connection. The guard writes `order` only; all else, and its end, is written here. */
struct slot {
	__u64 cookie;     /* socket cookie, or number of a forwarded connection; 0: free */
	__u64 received;   /* payload bytes */
	__u32 rtt_us;     /* receiver's estimate; 0: unknown */
	__u32 min_rtt_us; /* smallest RTT of the handshake and of sent data */
	__u32 out_of_order;
	__u32 window;     /* offered */
	__u32 clamp;
	__u32 mss;
	__u64 updated_ns;
	__u64 order;      /* low half of the cookie, then the window in bytes or LEFT_ALONE; 0: none */
	__u32 flags;      /* PASSIVE, FORWARDED, OWN */
	__u32 owner;      /* process that listened or connected; 0: unknown */
	__u8 remote[16];  /* IPv4 mapped to IPv6 */
	__u8 local[16];
	__u16 remote_port;
	__u16 local_port;
	__u32 netns;      /* inode of the network namespace */
	__u64 cgroup;
	__u32 dsacks;     /* packets with a DSACK (RFC 2883) that were sent */
} __attribute__((aligned(128)));

/* State of the guard, which it writes, and counters. */
struct control {
	__u64 heartbeat_ns;
	__u64 rate;         /* payload of the port in bytes per second; 0: starts are unlimited */
	__u64 queue;        /* bytes that may wait at the port */
	__u64 taken;        /* bytes of windows, added to by starts since the last tick */
	__u64 min_segments; /* smallest window */
	__u64 is_asleep;    /* the guard waits for a start */
	__u64 starts;       /* and openings */
	__u64 start_ns;     /* time for which starting windows hold unless the guard orders others */
	__u64 forwarded;    /* connections of guests so far */
	__u64 without_slot; /* connections for which no slot was free */
	__u64 lost_events;  /* events for which the ring had no room */
	__u64 unfollowed;   /* connections whose callbacks the kernel could not enable */
	__u64 lifted;       /* windows lifted since the heartbeat ended */
	__u64 closed;       /* windows that could not be lifted, as they were closed */
	__u64 refused;      /* windows that the kernel did not set */
	__u64 lifts_closed; /* a closed window may be lifted: from Linux 6.8 on */
	__u64 is_filtered;  /* only connections of `cgroups` are adopted */
};

_Static_assert(sizeof(struct slot) == 128 && sizeof(struct control) == 136,
	       "a new size needs another LAYOUT in programs.rs");

enum event_kind { OPENED = 1, CLOSED = 2, STARTED = 3 };

/* Start of a connection, or its new start after a pause. */
struct starting {
	__u64 started_ns;
	__u64 active_ns; /* last start, or last data */
	__u32 window;    /* 0: unlimited */
	__u32 unused;
};

struct event {
	__u32 kind;
	__u32 slot;
	__u64 cookie;
	__u64 received; /* before it was opened */
};

/* Key of a service: the server's port, which is the lower one, whether it is that of this host, and
 * the peer's network. */
struct service {
	__u16 port;
	__u16 is_local;
	__u32 network;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_CONNECTIONS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* A byte for each slot, in words of eight: 1 if it was updated since the guard has cleared it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_CONNECTIONS / 8);
	__type(key, __u32);
	__type(value, __u64);
} updated SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, MAX_CONNECTIONS);
	__uint(key_size, 0);
	__uint(value_size, sizeof(__u32));
} free_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

/* Networks of peers whose bottleneck may be the port; the value is not used. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} networks SEC(".maps");

/* Services with held connections, and the first window of new ones in segments. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct service);
	__type(value, __u32);
} services SEC(".maps");

static __always_inline struct control *guard_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

/* Marks a slot as updated, after the update. */
static __always_inline void mark_updated(__u32 index)
{
	__u32 word = index / 8;
	__u8 *bytes = bpf_map_lookup_elem(&updated, &word);

	if (bytes)
		bytes[index % 8] = 1;
}

static __always_inline int is_alive(const struct control *control, __u64 now)
{
	/* The heartbeat may be newer than `now`, as another CPU wrote it. */
	return control->heartbeat_ns + HEARTBEAT_TIMEOUT_NS > now;
}

static __always_inline void map_address(__u8 *to, __be32 address)
{
	__builtin_memset(to, 0, 10);
	to[10] = 0xff;
	to[11] = 0xff;
	__builtin_memcpy(to + 12, &address, 4);
}

/* Returns whether the ring had room. */
static __always_inline int send_event(struct control *control, __u32 kind, __u32 index,
				      __u64 cookie, __u64 received, __u64 flags)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		__sync_fetch_and_add(&control->lost_events, 1);
		return 0;
	}
	event->kind = kind;
	event->slot = index;
	event->cookie = cookie;
	event->received = received;
	bpf_ringbuf_submit(event, flags);
	return 1;
}

/*
 * Returns a window for a connection that starts: half of what is left of the port's BDP and queue,
 * as connections that start at the same time do not know of each other yet. 0: unlimited.
 */
static __always_inline __u32 take_window(struct control *control, __u32 mss, __u32 rtt_us,
					 __u32 max)
{
	__u64 rate = control->rate;
	__u64 total, taken, window;

	if (!rate)
		return 0;
	total = control->queue + rate * rtt_us / US_PER_SECOND;
	taken = control->taken;
	window = taken < total ? (total - taken) / 2 : 0;
	if (window < control->min_segments * mss)
		window = control->min_segments * mss;
	if (window > max)
		window = max;
	__sync_fetch_and_add(&control->taken, window);
	return window;
}

/* Number of a peer's network: /24, or /64 folded to 32 bits. */
static __always_inline __u32 network_of(__u32 family, __u32 ip4, __u32 *ip6)
{
	if (family == AF_INET)
		return bpf_ntohl(ip4) >> 8;
	if (!ip6[0] && !ip6[1] && ip6[2] == bpf_htonl(0xffff))
		return bpf_ntohl(ip6[3]) >> 8;
	return bpf_ntohl(ip6[0]) ^ bpf_ntohl(ip6[1]);
}

/* Returns whether the bottleneck of a peer may be the port. */
static __always_inline int is_near(__u32 network)
{
	return bpf_map_lookup_elem(&networks, &network) != 0;
}

/* Returns the first window of a new connection in segments; 0: unlimited. */
static __always_inline __u32 first_window(struct control *control, __u16 remote_port,
					  __u16 local_port, __u32 network, __u32 mss, __u64 now)
{
	__u32 segments = MAX_FIRST_SEGMENTS;
	struct service service = {};
	__u32 *remembered;

	if (!control->rate || !is_near(network) || !is_alive(control, now))
		return 0;
	service.is_local = local_port < remote_port;
	service.port = service.is_local ? local_port : remote_port;
	service.network = network;
	remembered = bpf_map_lookup_elem(&services, &service);
	if (remembered && *remembered < segments)
		segments = *remembered;
	segments = take_window(control, mss, 0, segments * mss) / mss;
	/* Linux sends in parts of half of the largest window that it was ever offered. */
	if (segments < 2)
		segments = 2;
	return segments < MAX_FIRST_SEGMENTS ? segments : 0;
}

/*
 * Returns whether a connection starts to receive: with a request, or with more than a small one
 * from its peer.
 */
static __always_inline int has_started(struct starting *starting, __u64 more, __u32 mss,
				       int has_request, __u64 now)
{
	int is_start = (has_request || more > mss) && now > starting->active_ns + PAUSE_NS;

	if (is_start)
		starting->started_ns = now;
	if (is_start || more)
		starting->active_ns = now;
	return is_start;
}

/* Returns whether a connection is left alone: by the guard's order, or as one of bankfull's own. */
static __always_inline int is_left_alone(const struct slot *slot)
{
	__u64 order = slot->order;

	return slot->flags & OWN ||
	       ((__u32)order == LEFT_ALONE && order >> 32 == (__u32)slot->cookie);
}

/* Returns the window that the guard orders, or that of a start; 0: none. */
static __always_inline __u32 wanted_window(const struct control *control, const struct slot *slot,
					   const struct starting *starting, __u64 now)
{
	__u64 order = slot->order;

	if (!is_alive(control, now) || is_left_alone(slot))
		return 0;
	if ((__u32)order && order >> 32 == (__u32)slot->cookie)
		return order;
	return now < starting->started_ns + control->start_ns ? starting->window : 0;
}

/* Counts a start or an opening. Returns how its event wakes the guard, which may be waiting. */
static __always_inline __u64 count_start(struct control *control)
{
	__sync_fetch_and_add(&control->starts, 1);
	if (!control->is_asleep)
		return BPF_RB_NO_WAKEUP;
	control->is_asleep = 0;
	return BPF_RB_FORCE_WAKEUP;
}

/* Wakes the guard if it waits for a start. */
static __always_inline void report_start(struct control *control, __u32 index,
					 const struct slot *slot)
{
	__u64 flags = count_start(control);

	if (flags == BPF_RB_FORCE_WAKEUP)
		send_event(control, STARTED, index, slot->cookie, slot->received, flags);
}

#endif
