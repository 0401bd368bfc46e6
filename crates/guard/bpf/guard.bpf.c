// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Receive windows of TCP connections that other programs own.
 *
 * `follow` runs at the callbacks of each connection below a cgroup. It publishes the state of the
 * connection in a slot, which the guard maps into its memory, and applies the window that the guard
 * has ordered there. It is called for each outgoing acknowledgement before the kernel chooses the
 * window, so that an order holds from the next acknowledgement on.
 *
 * Without a heartbeat of the guard for a second, windows are lifted.
 */
#include "forwarded.h"
#include "state.h"

#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define SOL_TCP 6
#define TCP_WINDOW_CLAMP 10
/* Linux 6.13. */
#define GUARD_TCP_BPF_SOCK_OPS_CB_FLAGS 1008
/* Window clamp of a new connection. (tcp_select_initial_window: U16_MAX << TCP_MAX_WSCALE) */
#define UNLIMITED_WINDOW (65535U << 14)
/* Fixed-point RTTs of sockets are eighths of a microsecond. */
#define RTT_SHIFT 3
#define CALLBACKS (BPF_SOCK_OPS_STATE_CB_FLAG | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG)

/* Updates of a busy connection in the time of two ticks. (chosen: the guard reads the third or
 * fourth of a tick, and an order waits for a quarter of one) */
#define UPDATES_PER_START 8

/* What the guard has done with a connection. */
struct tracked {
	__u32 slot;
	__u32 wanted;  /* window last ordered; 0: none */
	__u32 applied; /* clamp that followed, which has a minimum */
	__u32 is_counted;
	__u64 updated_ns;
	__u32 dsacks;
	__u32 unused;
	struct starting starting;
};

_Static_assert(sizeof(struct tracked) == 56, "a new size needs another LAYOUT in programs.rs");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tracked);
} tracked_sockets SEC(".maps");

/* Cgroups whose earlier connections are adopted, by number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_CONNECTIONS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u8);
} cgroups SEC(".maps");

/* Set in the owner of bankfull's own sockets. */
#define OWN_OWNER (1U << 31)

/* Owners of sockets; accepted sockets inherit that of the listening one. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, __u32);
} owners SEC(".maps");

/* Publishes what changes in the course of a connection. */
static __always_inline void publish(struct slot *slot, const struct tracked *tracked,
				    struct tcp_sock *tp, __u64 now)
{
	slot->received = tp->bytes_received;
	slot->rtt_us = tp->rcv_rtt_est.rtt_us >> RTT_SHIFT;
	slot->min_rtt_us = tp->rtt_min.s[0].v;
	slot->out_of_order = tp->rcv_ooopack;
	slot->dsacks = tracked->dsacks;
	slot->window = tp->rcv_wnd;
	slot->clamp = tp->window_clamp;
	slot->updated_ns = now;
}

static __always_inline void publish_addresses(struct slot *slot, struct tcp_sock *tp)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	if (sk->__sk_common.skc_family == AF_INET) {
		map_address(slot->remote, sk->__sk_common.skc_daddr);
		map_address(slot->local, sk->__sk_common.skc_rcv_saddr);
	} else {
		struct in6_addr *remote = &sk->__sk_common.skc_v6_daddr;
		struct in6_addr *local = &sk->__sk_common.skc_v6_rcv_saddr;

		for (int i = 0; i < 4; i++) {
			__be32 part = remote->in6_u.u6_addr32[i];

			__builtin_memcpy(slot->remote + 4 * i, &part, 4);
			part = local->in6_u.u6_addr32[i];
			__builtin_memcpy(slot->local + 4 * i, &part, 4);
		}
	}
	slot->remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	slot->local_port = sk->__sk_common.skc_num;
	slot->netns = sk->__sk_common.skc_net.net->ns.inum;
	slot->cgroup = sk->sk_cgrp_data.cgroup->kn->id;
}

/* Gives a connection a slot. Returns whether one was free. */
static __always_inline int open_slot(struct control *control, struct tracked *tracked,
				     struct tcp_sock *tp, __u64 cookie, __u32 flags,
				     __u32 owner)
{
	__u64 now = bpf_ktime_get_ns();
	struct slot *slot;
	__u32 index;

	if (bpf_map_pop_elem(&free_slots, &index)) {
		__sync_fetch_and_add(&control->without_slot, 1);
		return 0;
	}
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot)
		return 0;
	tracked->slot = index;
	tracked->wanted = 0;
	tracked->applied = 0;
	tracked->updated_ns = 0;
	tracked->starting.active_ns = 0;
	tracked->starting.window = 0;
	publish_addresses(slot, tp);
	publish(slot, tracked, tp, now);
	slot->mss = tp->advmss;
	slot->order = 0;
	slot->flags = owner & OWN_OWNER ? flags | OWN : flags;
	slot->owner = owner & ~OWN_OWNER;
	slot->cookie = cookie;
	send_event(control, OPENED, index, cookie, slot->received, count_start(control));
	return 1;
}

/* Number of the peer's network. */
static __always_inline __u32 peer_network(struct bpf_sock_ops *ctx)
{
	__u32 ip6[4] = {};

	if (ctx->family == AF_INET6) {
		ip6[0] = ctx->remote_ip6[0];
		ip6[1] = ctx->remote_ip6[1];
		ip6[2] = ctx->remote_ip6[2];
		ip6[3] = ctx->remote_ip6[3];
	}
	return network_of(ctx->family, ctx->remote_ip4, ip6);
}

/*
 * Limits a connection that starts to receive, until the guard orders a window: many that start
 * together would overflow the port before its next tick.
 */
static __always_inline void start(struct bpf_sock_ops *ctx, struct control *control,
				  struct slot *slot, struct tracked *tracked,
				  struct tcp_sock *tp, __u64 now)
{
	__u64 more = tp->bytes_received - slot->received;
	__u32 rtt_us = tp->rtt_min.s[0].v;
	__u32 unacknowledged = tp->write_seq - tp->snd_una;
	int has_request = unacknowledged > 0;

	if (is_left_alone(slot)) {
		tracked->starting.active_ns = now;
		return;
	}
	/* More than a first flight is a response of this host, which will receive little. */
	if (unacknowledged > MAX_FIRST_SEGMENTS * tp->advmss) {
		tracked->starting.active_ns = now;
		return;
	}
	if (!has_started(&tracked->starting, more, tp->advmss, has_request, now))
		return;
	tracked->starting.window = 0;
	if (is_near(peer_network(ctx)) && rtt_us != ~0U)
		tracked->starting.window =
			take_window(control, tp->advmss, rtt_us, UNLIMITED_WINDOW);
	report_start(control, tracked->slot, slot);
}

/* Sets a window, or lifts it. Returns whether the kernel did. */
static __always_inline int set_window(void *target, struct control *control, struct tcp_sock *tp,
				      struct tracked *tracked, __u32 window)
{
	int value = window ? window : UNLIMITED_WINDOW;

	int failed = bpf_setsockopt(target, SOL_TCP, TCP_WINDOW_CLAMP, &value, sizeof(value)) != 0;

	/* A refused one is not tried again before another order. */
	tracked->wanted = window;
	tracked->applied = tp->window_clamp;
	if (failed)
		__sync_fetch_and_add(&control->refused, 1);
	return !failed;
}

/* Returns whether the kernel has replaced a clamp, as when the ratio of data to memory changes, or
 * when its buffer grows after a burst. */
static __always_inline int is_replaced(const struct tracked *tracked, const struct tcp_sock *tp)
{
	return tracked->wanted && tp->window_clamp != tracked->applied;
}

/* Applies the order of the guard, or lifts the window. */
static __always_inline void apply_order(void *target, struct control *control, struct slot *slot,
					struct tracked *tracked, struct tcp_sock *tp, __u64 now)
{
	__u32 wanted = wanted_window(control, slot, &tracked->starting, now);

	if (wanted == tracked->wanted && !is_replaced(tracked, tp))
		return;
	/* Before Linux 6.8, any clamp during a closed window closes it for good. */
	if (tp->rcv_wnd == 0 && (wanted || !control->lifts_closed))
		return;
	set_window(target, control, tp, tracked, wanted);
}

static __always_inline __u32 owner_of(void *sk)
{
	__u32 *owner = bpf_sk_storage_get(&owners, sk, 0, 0);

	return owner ? *owner : 0;
}

/* Returns a process as the owner of a socket. */
static __always_inline __u32 owner_by(struct task_struct *task)
{
	static const char own[] = "bankfull";

	for (int i = 0; i < (int)sizeof(own); i++) {
		if (task->group_leader->comm[i] != own[i])
			return task->tgid;
	}
	return task->tgid | OWN_OWNER;
}

/* Notes the process that connects or listens. */
static __always_inline void note_owner(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct task_struct *task = (struct task_struct *)bpf_get_current_task_btf();
	__u32 *owner;

	if (!sk)
		return;
	owner = bpf_sk_storage_get(&owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (owner)
		*owner = owner_by(task);
}

static __always_inline void open_connection(struct bpf_sock_ops *ctx, struct control *control)
{
	struct bpf_sock *sk = ctx->sk;
	struct tcp_sock *tp;
	struct tracked *tracked;

	if (!sk)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	tracked = bpf_sk_storage_get(&tracked_sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	/* Before the guard, `adopt` may have found it. */
	if (!tracked || tracked->is_counted)
		return;
	tracked->is_counted = 1;
	if (!open_slot(control, tracked, tp, bpf_get_socket_cookie(ctx),
		       ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB ? PASSIVE : 0, owner_of(sk))) {
		bpf_sk_storage_delete(&tracked_sockets, sk);
		return;
	}
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | CALLBACKS);
}

/*
 * Returns whether a connection was updated a moment ago, and has not paused since. Each packet that
 * the host sends passes here; the guard reads a slot each tick, which is half of `start_ns`.
 */
static __always_inline int is_recent(const struct control *control, struct tracked *tracked,
				     const struct tcp_sock *tp, __u64 now)
{
	if (now >= tracked->updated_ns + control->start_ns / UPDATES_PER_START ||
	    now > tracked->starting.active_ns + PAUSE_NS || is_replaced(tracked, tp))
		return 0;
	tracked->starting.active_ns = now;
	return 1;
}

static __always_inline void update_connection(struct bpf_sock_ops *ctx, struct control *control)
{
	struct bpf_sock *sk = ctx->sk;
	struct tracked *tracked;
	struct tcp_sock *tp;
	struct slot *slot;
	__u64 now;

	if (!sk)
		return;
	tracked = bpf_sk_storage_get(&tracked_sockets, sk, 0, 0);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tracked || !tp)
		return;
	/* The kernel also asks for the options of a packet that it does not send now. */
	if (ctx->args[0] != BPF_WRITE_HDR_TCP_CURRENT_MSS &&
	    BPF_CORE_READ_BITFIELD(tp, rx_opt.dsack))
		tracked->dsacks++;
	/* The time of this packet: to read the clock takes 90 ns on a virtual machine. */
	now = tp->tcp_mstamp * NS_PER_US;
	if (is_recent(control, tracked, tp, now))
		return;
	slot = bpf_map_lookup_elem(&slots, &tracked->slot);
	if (!slot)
		return;
	tracked->updated_ns = now;
	start(ctx, control, slot, tracked, tp, now);
	apply_order(ctx, control, slot, tracked, tp, now);
	publish(slot, tracked, tp, now);
	mark_updated(tracked->slot);
}

static __always_inline void close_connection(struct bpf_sock_ops *ctx, struct control *control)
{
	struct bpf_sock *sk = ctx->sk;
	struct tracked *tracked;
	struct tcp_sock *tp;
	struct slot *slot;
	__u32 index;

	if (!sk)
		return;
	tracked = bpf_sk_storage_get(&tracked_sockets, sk, 0, 0);
	if (!tracked)
		return;
	index = tracked->slot;
	slot = bpf_map_lookup_elem(&slots, &index);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!slot || !tp)
		return;
	publish(slot, tracked, tp, bpf_ktime_get_ns());
	/* After a guard that has ended, the slot stays. */
	slot->order = 0;
	bpf_sk_storage_delete(&tracked_sockets, sk);
	/* The guard reads a slot once more, and returns it. */
	if (!send_event(control, CLOSED, index, slot->cookie, 0, BPF_RB_NO_WAKEUP)) {
		/* By this the guard finds that the connection has ended. */
		slot->cookie = 0;
		bpf_map_push_elem(&free_slots, &index, BPF_ANY);
	}
}

/* Offers the first window of a connection that is not established yet. */
static __always_inline void offer_first_window(struct bpf_sock_ops *ctx, struct control *control)
{
	struct bpf_sock *sk = ctx->sk;
	__u32 segments;

	if (sk && owner_of(sk) & OWN_OWNER)
		return;
	segments = first_window(control, bpf_ntohl(ctx->remote_port), ctx->local_port,
				peer_network(ctx), DEFAULT_MSS, bpf_ktime_get_ns());

	if (segments)
		ctx->reply = segments;
}

SEC("sockops")
int follow(struct bpf_sock_ops *ctx)
{
	struct control *control = guard_control();

	if (!control)
		return 1;
	switch (ctx->op) {
	case BPF_SOCK_OPS_RWND_INIT:
		offer_first_window(ctx, control);
		break;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		note_owner(ctx);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		open_connection(ctx, control);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		update_connection(ctx, control);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ctx->args[1] == BPF_TCP_CLOSE)
			close_connection(ctx, control);
		break;
	}
	return 1;
}

/* Adopts connections of a network namespace that were established before. */
SEC("iter/tcp")
int adopt(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct control *control = guard_control();
	struct tracked *tracked;
	struct tcp_sock *tp;
	int flags = 0;
	__u64 cgroup;

	if (!skc || !control)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	/* The namespace also has sockets of cgroups that are not followed. */
	cgroup = tp->inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup->kn->id;
	if (control->is_filtered && !bpf_map_lookup_elem(&cgroups, &cgroup))
		return 0;
	if (skc->skc_state != BPF_TCP_ESTABLISHED && skc->skc_state != BPF_TCP_FIN_WAIT1 &&
	    skc->skc_state != BPF_TCP_FIN_WAIT2)
		return 0;
	tracked = bpf_sk_storage_get(&tracked_sockets, tp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!tracked || tracked->is_counted)
		return 0;
	tracked->is_counted = 1;
	bpf_getsockopt(tp, SOL_TCP, GUARD_TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	flags |= CALLBACKS;
	if (bpf_setsockopt(tp, SOL_TCP, GUARD_TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags))) {
		__sync_fetch_and_add(&control->unfollowed, 1);
		bpf_sk_storage_delete(&tracked_sockets, tp);
		return 0;
	}
	if (!open_slot(control, tracked, tp, bpf_get_socket_cookie(tp), 0, owner_of(tp)))
		bpf_sk_storage_delete(&tracked_sockets, tp);
	return 0;
}

/* Lifts the windows of a network namespace, also those of idle connections. */
SEC("iter/tcp")
int lift(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct control *control = guard_control();
	struct tracked *tracked;
	struct tcp_sock *tp;

	if (!skc || !control)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	tracked = bpf_sk_storage_get(&tracked_sockets, tp, 0, 0);
	if (!tracked || !tracked->wanted)
		return 0;
	if (tp->rcv_wnd == 0 && !control->lifts_closed)
		__sync_fetch_and_add(&control->closed, 1);
	else if (set_window(tp, control, tp, tracked, 0))
		__sync_fetch_and_add(&control->lifted, 1);
	return 0;
}

/* Notes the processes of sockets that are open already. */
SEC("iter/task_file")
int find_owners(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	struct sock *sk;
	__u32 *owner, found;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	found = owner_by(task);
	owner = bpf_sk_storage_get(&owners, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	/* A service manager may listen for bankfull. */
	if (owner && (!*owner || found & OWN_OWNER))
		*owner = found;
	return 0;
}
