/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Connections of guests: `from_guest` and `to_guest` see the packets of an interface behind which
 * guests are, such as a tap, a veth or a bridge.
 *
 * A window is rewritten in the guest's acknowledgements. It is never enlarged, and its right edge
 * never moves to the left: what the sender was allowed once stays allowed. (RFC 9293, 3.8.6)
 */
#ifndef GUARD_FORWARDED_H
#define GUARD_FORWARDED_H

#include "state.h"

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

/* Tags before a packet's network header that are skipped. (802.1ad: two) */
#define MAX_VLAN_TAGS 2
#define VLAN_HEADER_LEN 4
#define VLAN_NUMBER_MASK 0xfff
#define IPV4_HEADER_LEN 20
#define IPV6_HEADER_LEN 40
#define TCP_HEADER_LEN 20
#define FRAGMENT_MASK 0x3fff /* more fragments, or an offset */

/* Super-packets of IPv6 beyond 64 KiB name their length in a header of their own. (RFC 2675) */
#define IPPROTO_HOPOPTS 0
#define OPTION_JUMBO 194

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* Payload of a segment that a guest may announce. (RFC 9293, 3.7.1; Ethernet's jumbo frames) */
#define MIN_MSS 536
#define MAX_MSS 8960

#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_MSS 2
#define OPTION_WINDOW_SCALE 3
#define OPTION_MD5 19 /* RFC 2385 */
#define OPTION_AO 29  /* RFC 5925 */
#define MAX_OPTIONS_LEN 40
/* RFC 7323, 2.3. */
#define MAX_WINDOW_SCALE 14

/* Linux 6.6. (enum tcx_action_base) */
#define GUARD_TCX_NEXT (-1)

/* Cookies of forwarded connections, which those of sockets do not reach. */
#define FIRST_FORWARDED (1ULL << 63)

struct ipv4_header {
	__u8 version_length;
	__u8 service;
	__be16 length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__be32 source;
	__be32 destination;
};

struct ipv6_header {
	__be32 flow;
	__be16 length;
	__u8 protocol;
	__u8 hop_limit;
	__u8 source[16];
	__u8 destination[16];
};

struct jumbo_header {
	__u8 protocol;
	__u8 length; /* in words of eight bytes, after the first */
	__u8 option;
	__u8 option_length;
	__be32 payload; /* this header included */
};

struct tcp_header {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledgement;
	__u8 length; /* in words, shifted by 4 */
	__u8 flags;
	__be16 window;
	__be16 checksum;
	__be16 urgent;
};

/* Connection of a guest: its own endpoint is the local one. */
struct flow_key {
	__u8 remote[16];
	__u8 local[16];
	__u16 remote_port;
	__u16 local_port;
	__u32 interface; /* of the guest, as another one may use the same addresses */
	__u64 vlans;     /* numbers of its tags, twelve bits each, for the same reason */
};

struct flow {
	__u64 cookie;     /* of its slot; 0: not established yet */
	__u32 slot;
	__u32 next;       /* sequence number after the last data */
	__u32 acknowledged; /* that the guest expects, or expected a moment ago */
	__u32 rtt_us;     /* of the handshake */
	__u32 own_next;   /* that of the guest's first byte */
	__u32 syn_payload; /* bytes in its SYN: TCP Fast Open */
	__u32 right_edge; /* largest sequence number that was allowed */
	__u32 mss;
	__u32 first_window;
	__u64 seen;       /* bytes received before the last acknowledgement */
	__u64 syn_ns;     /* time of the guest's SYN */
	__u8 scale;       /* of the guest's windows */
	__u8 has_scale;   /* the guest offers it */
	__u8 is_scaled;   /* both sides do */
	__u8 fins;        /* sides that have ended their stream */
	__u8 is_passive;
	struct starting starting;
};

/* Headers of a packet. */
struct packet {
	struct flow_key key;
	__u32 network; /* of the remote side */
	__u32 tcp;     /* offset of the TCP header */
	__u32 header_len;
	__u32 payload;
	__u32 sequence;
	__u32 acknowledgement;
	__u16 window;
	__u8 flags;
};

/* Those that are not closed in order are replaced by newer ones. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_CONNECTIONS);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* Those that are not established yet, apart: many SYNs replace no connection. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_CONNECTIONS);
	__type(key, struct flow_key);
	__type(value, struct flow);
} half_open SEC(".maps");

static __always_inline int load(struct __sk_buff *skb, __u32 offset, void *to, __u32 len)
{
	return bpf_skb_load_bytes(skb, offset, to, len) == 0;
}

/* Parses the IPv4 header. Returns the bytes from the TCP header on; 0: none. */
static __always_inline __u32 parse_ipv4(struct __sk_buff *skb, struct packet *packet,
					__u32 offset, int is_from_guest)
{
	struct ipv4_header ip;
	__u32 len, header_len;

	if (!load(skb, offset, &ip, sizeof(ip)))
		return 0;
	if (ip.protocol != IPPROTO_TCP || ip.fragment & bpf_htons(FRAGMENT_MASK))
		return 0;
	header_len = (ip.version_length & 0xf) * 4;
	/* Super-packets beyond 64 KiB have none; others may be padded by Ethernet. */
	len = bpf_ntohs(ip.length);
	if (!len)
		len = skb->len - offset;
	if (header_len < IPV4_HEADER_LEN || len <= header_len)
		return 0;
	packet->tcp = offset + header_len;
	map_address(packet->key.remote, is_from_guest ? ip.destination : ip.source);
	map_address(packet->key.local, is_from_guest ? ip.source : ip.destination);
	packet->network =
		network_of(AF_INET, is_from_guest ? ip.destination : ip.source, 0);
	return len - header_len;
}

/* Parses the jumbo header. Returns the bytes from the TCP header on; 0: none. */
static __always_inline __u32 parse_jumbo(struct __sk_buff *skb, __u32 offset)
{
	struct jumbo_header jumbo;
	__u32 payload;

	if (!load(skb, offset, &jumbo, sizeof(jumbo)))
		return 0;
	payload = bpf_ntohl(jumbo.payload);
	if (jumbo.protocol != IPPROTO_TCP || jumbo.length || jumbo.option != OPTION_JUMBO ||
	    jumbo.option_length != sizeof(payload) || payload < sizeof(jumbo))
		return 0;
	return payload - sizeof(jumbo);
}

/* Parses the IPv6 header; packets with other extension headers are left alone. */
static __always_inline __u32 parse_ipv6(struct __sk_buff *skb, struct packet *packet,
					__u32 offset, int is_from_guest)
{
	struct ipv6_header ip;
	__u32 words[4];
	__u32 len;

	if (!load(skb, offset, &ip, sizeof(ip)))
		return 0;
	packet->tcp = offset + IPV6_HEADER_LEN;
	len = bpf_ntohs(ip.length);
	if (ip.protocol == IPPROTO_HOPOPTS && !len) {
		len = parse_jumbo(skb, packet->tcp);
		packet->tcp += sizeof(struct jumbo_header);
	} else if (ip.protocol != IPPROTO_TCP) {
		return 0;
	} else if (!len) {
		len = skb->len - packet->tcp;
	}
	if (is_from_guest) {
		__builtin_memcpy(packet->key.remote, ip.destination, 16);
		__builtin_memcpy(packet->key.local, ip.source, 16);
	} else {
		__builtin_memcpy(packet->key.remote, ip.source, 16);
		__builtin_memcpy(packet->key.local, ip.destination, 16);
	}
	__builtin_memcpy(words, packet->key.remote, 16);
	packet->network = network_of(AF_INET6, 0, words);
	return len;
}

/* Returns whether a packet is TCP, not fragmented, with all its headers. */
static __always_inline int parse(struct __sk_buff *skb, struct packet *packet, int is_from_guest)
{
	struct tcp_header tcp;
	__u32 offset = ETH_HLEN;
	__be16 protocol, tag[2];
	__u32 len = 0;

	if (!load(skb, ETH_HLEN - sizeof(protocol), &protocol, sizeof(protocol)))
		return 0;
	/* The kernel keeps the first tag beside the packet. */
	if (skb->vlan_present)
		packet->key.vlans = skb->vlan_tci & VLAN_NUMBER_MASK;
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
			break;
		/* The tag, and the protocol of what follows. */
		if (!load(skb, offset, tag, sizeof(tag)))
			return 0;
		packet->key.vlans =
			packet->key.vlans << 12 | (bpf_ntohs(tag[0]) & VLAN_NUMBER_MASK);
		protocol = tag[1];
		offset += VLAN_HEADER_LEN;
	}
	if (protocol == bpf_htons(ETH_P_IP))
		len = parse_ipv4(skb, packet, offset, is_from_guest);
	else if (protocol == bpf_htons(ETH_P_IPV6))
		len = parse_ipv6(skb, packet, offset, is_from_guest);
	if (!len || !load(skb, packet->tcp, &tcp, sizeof(tcp)))
		return 0;
	packet->header_len = (tcp.length >> 4) * 4;
	if (packet->header_len < TCP_HEADER_LEN || packet->header_len > len)
		return 0;
	packet->payload = len - packet->header_len;
	packet->key.interface = skb->ifindex;
	packet->key.remote_port = bpf_ntohs(is_from_guest ? tcp.destination : tcp.source);
	packet->key.local_port = bpf_ntohs(is_from_guest ? tcp.source : tcp.destination);
	packet->sequence = bpf_ntohl(tcp.sequence);
	packet->acknowledgement = bpf_ntohl(tcp.acknowledgement);
	packet->window = bpf_ntohs(tcp.window);
	packet->flags = tcp.flags;
	return 1;
}

/* Options of a SYN. */
struct syn_options {
	__u32 mss; /* 0: not given */
	__u8 scale;
	__u8 has_scale;
	__u8 is_signed; /* with the window */
};

static __always_inline void parse_options(struct __sk_buff *skb, const struct packet *packet,
					  struct syn_options *options)
{
	__u32 at = TCP_HEADER_LEN;

	/* Each option but END and NOP has a length of two at least. */
	for (int i = 0; i < MAX_OPTIONS_LEN; i++) {
		__u8 option[4] = {}; /* kind, length, value */

		if (at >= packet->header_len || !load(skb, packet->tcp + at, option, 1))
			return;
		if (option[0] == OPTION_END)
			return;
		if (option[0] == OPTION_NOP) {
			at++;
			continue;
		}
		if (!load(skb, packet->tcp + at, option, 3) || option[1] < 2)
			return;
		if (option[0] == OPTION_WINDOW_SCALE) {
			options->has_scale = 1;
			options->scale = option[2] > MAX_WINDOW_SCALE ? MAX_WINDOW_SCALE : option[2];
		} else if (option[0] == OPTION_MSS && load(skb, packet->tcp + at, option, 4)) {
			options->mss = (__u32)option[2] << 8 | option[3];
		} else if (option[0] == OPTION_MD5 || option[0] == OPTION_AO) {
			options->is_signed = 1;
		}
		at += option[1];
	}
}

/* Replaces the window of a packet, and corrects its checksum. */
static __always_inline void rewrite_window(struct __sk_buff *skb, struct packet *packet,
					   __u16 window)
{
	__be16 old = bpf_htons(packet->window);
	__be16 new = bpf_htons(window);
	__u32 checksum_at = packet->tcp + __builtin_offsetof(struct tcp_header, checksum);
	__u32 window_at = packet->tcp + __builtin_offsetof(struct tcp_header, window);

	if (bpf_l4_csum_replace(skb, checksum_at, old, new, sizeof(new)))
		return;
	if (bpf_skb_store_bytes(skb, window_at, &new, sizeof(new), 0)) {
		/* Nothing was written, so that the old checksum fits. */
		bpf_l4_csum_replace(skb, checksum_at, new, old, sizeof(new));
		return;
	}
	packet->window = window;
}

/* Limits the first window, that of a SYN. It is not scaled. (RFC 7323, 2.2) */
static __always_inline void limit_syn(struct __sk_buff *skb, struct control *control,
				      struct packet *packet, __u32 mss, __u64 now)
{
	__u32 window = mss * first_window(control, packet->key.remote_port,
					  packet->key.local_port, packet->network, mss, now);

	if (window && window < packet->window)
		rewrite_window(skb, packet, window);
}

static __always_inline void close_flow(struct control *control, struct flow *flow,
				       const struct flow_key *key);

/* Notes the SYN of a guest, and limits its first window. */
static __always_inline void on_guest_syn(struct __sk_buff *skb, struct control *control,
					 struct packet *packet, __u64 now)
{
	struct syn_options options = {};
	struct flow fresh = {};
	struct flow *flow;

	/* A new connection with the same ports. */
	flow = bpf_map_lookup_elem(&flows, &packet->key);
	if (flow)
		close_flow(control, flow, &packet->key);
	parse_options(skb, packet, &options);
	if (options.is_signed) {
		bpf_map_delete_elem(&half_open, &packet->key);
		return;
	}
	fresh.scale = options.scale;
	fresh.has_scale = options.has_scale;
	fresh.is_passive = !!(packet->flags & TCP_ACK);
	/* A SYN-ACK has a scale only if the SYN had one. (RFC 7323, 2.2) */
	fresh.is_scaled = fresh.is_passive && options.has_scale;
	fresh.mss = options.mss ? options.mss : DEFAULT_MSS;
	if (fresh.mss < MIN_MSS)
		fresh.mss = MIN_MSS;
	if (fresh.mss > MAX_MSS)
		fresh.mss = MAX_MSS;
	/* Of one that is sent again, only an RTT of its timeout, a second, would look short. */
	fresh.syn_ns = now;
	fresh.own_next = packet->sequence + 1;
	fresh.syn_payload = packet->payload;
	limit_syn(skb, control, packet, fresh.mss, now);
	fresh.first_window = packet->window;
	/* Of a passive one; else the SYN-ACK tells it. */
	fresh.next = packet->acknowledgement;
	bpf_map_update_elem(&half_open, &packet->key, &fresh, BPF_ANY);
}

/* Gives a connection a slot. Returns none if all are in use. */
static __always_inline struct slot *take_slot(struct control *control, struct flow *flow,
					      const struct packet *packet, __u64 now)
{
	struct slot *slot;
	__u32 index;

	flow->cookie = 0;
	if (bpf_map_pop_elem(&free_slots, &index)) {
		__sync_fetch_and_add(&control->without_slot, 1);
		return 0;
	}
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot)
		return 0;
	flow->slot = index;
	flow->seen = 0;
	flow->cookie = FIRST_FORWARDED | __sync_fetch_and_add(&control->forwarded, 1);
	__builtin_memcpy(slot->remote, packet->key.remote, 16);
	__builtin_memcpy(slot->local, packet->key.local, 16);
	slot->remote_port = packet->key.remote_port;
	slot->local_port = packet->key.local_port;
	slot->netns = 0;
	slot->cgroup = 0;
	slot->owner = 0;
	slot->flags = FORWARDED | (flow->is_passive ? PASSIVE : 0);
	slot->mss = flow->mss;
	slot->received = 0;
	slot->rtt_us = 0;
	slot->min_rtt_us = flow->rtt_us;
	slot->out_of_order = 0;
	slot->dsacks = 0;
	slot->window = 0;
	slot->clamp = 0;
	slot->order = 0;
	slot->updated_ns = now;
	slot->cookie = flow->cookie;
	return slot;
}

/* Opens a connection that is established now. */
static __always_inline void open_flow(struct control *control, struct flow *flow,
				      const struct packet *packet, __u64 now)
{
	struct flow opened = *flow;
	struct slot *slot;

	bpf_map_delete_elem(&half_open, &packet->key);
	opened.rtt_us = (now - opened.syn_ns) / NS_PER_US;
	opened.right_edge = opened.next + opened.first_window;
	opened.acknowledged = opened.next;
	slot = take_slot(control, &opened, packet, now);
	if (!slot)
		return;
	if (bpf_map_update_elem(&flows, &packet->key, &opened, BPF_ANY)) {
		slot->cookie = 0;
		bpf_map_push_elem(&free_slots, &opened.slot, BPF_ANY);
		return;
	}
	send_event(control, OPENED, opened.slot, opened.cookie, 0, count_start(control));
}

/* Returns the slot of a connection; none: the guard has taken it back, or all were in use. */
static __always_inline struct slot *slot_of(struct flow *flow)
{
	__u32 index = flow->slot;
	struct slot *slot = flow->cookie ? bpf_map_lookup_elem(&slots, &index) : 0;

	return slot && slot->cookie == flow->cookie ? slot : 0;
}

static __always_inline void close_flow(struct control *control, struct flow *flow,
				       const struct flow_key *key)
{
	/* Another CPU may close it as well. */
	__u64 cookie = __sync_lock_test_and_set(&flow->cookie, 0);
	__u32 index = flow->slot;
	struct slot *slot = cookie ? bpf_map_lookup_elem(&slots, &index) : 0;

	if (slot && slot->cookie == cookie &&
	    !send_event(control, CLOSED, index, cookie, 0, BPF_RB_NO_WAKEUP)) {
		slot->cookie = 0;
		bpf_map_push_elem(&free_slots, &index, BPF_ANY);
	}
	bpf_map_delete_elem(&flows, key);
}

/* Returns the slot of a connection, or a new one after the silence for which it was taken back. */
static __always_inline struct slot *slot_again(struct control *control, struct flow *flow,
					       const struct packet *packet, __u64 now)
{
	struct slot *slot = slot_of(flow);

	if (slot || !flow->cookie)
		return slot;
	slot = take_slot(control, flow, packet, now);
	if (slot)
		send_event(control, OPENED, flow->slot, flow->cookie, 0, count_start(control));
	return slot;
}

/* Returns whether the connection has ended: by a reset, or by both sides. */
static __always_inline int has_ended(struct flow *flow, __u8 flags, __u8 side)
{
	if (flags & TCP_RST)
		return 1;
	if (flags & TCP_FIN)
		flow->fins |= side;
	return flow->fins == 3;
}

/* Returns the flags of a peer's packet that count: others may be forged. (RFC 9293, 3.10.7.4) */
static __always_inline __u8 valid_flags(const struct flow *flow, const struct packet *packet)
{
	__u32 end = packet->sequence + packet->payload;

	/* Beyond a gap, the guest expects less than the last data. */
	if (packet->flags & TCP_RST && (__s32)(packet->sequence - flow->acknowledged) >= 0 &&
	    (__s32)(packet->sequence - flow->next) <= 0)
		return packet->flags;
	if (packet->flags & TCP_RST)
		return packet->flags & ~(TCP_RST | TCP_FIN);
	if ((__s32)(end - flow->next) < 0 || (__s32)(end - flow->right_edge) > 0)
		return packet->flags & ~TCP_FIN;
	return packet->flags;
}

/* Limits a connection that starts to receive, as `start` does for sockets. */
static __always_inline void start_flow(struct control *control, struct flow *flow,
				       struct slot *slot, const struct packet *packet,
				       __u64 more, __u64 now)
{
	if (is_left_alone(slot)) {
		flow->starting.active_ns = now;
		return;
	}
	if (!has_started(&flow->starting, more, flow->mss, packet->payload > 0, now))
		return;
	flow->starting.window = 0;
	if (is_near(packet->network))
		flow->starting.window =
			take_window(control, flow->mss, slot->min_rtt_us, ~0U);
	report_start(control, flow->slot, slot);
}

/* Returns whether the limited window of its SYN holds for a connection: until it starts. */
static __always_inline int holds_first_window(const struct control *control,
					      const struct flow *flow, const struct slot *slot,
					      __u64 now)
{
	return !flow->starting.started_ns && flow->first_window < MAX_FIRST_SEGMENTS * flow->mss &&
	       !is_left_alone(slot) && is_alive(control, now);
}

/* Rewrites the window of an acknowledgement to the one that is wanted. */
static __always_inline void limit(struct __sk_buff *skb, struct flow *flow, struct slot *slot,
				  struct packet *packet, __u32 wanted)
{
	__u8 scale = flow->is_scaled ? flow->scale & 0xf : 0;
	__u32 window = (__u32)packet->window << scale;
	__s32 allowed = flow->right_edge - packet->acknowledgement;
	__u32 rewritten;

	/* A closed window is left unchanged. */
	if (!window)
		return;
	if (wanted && wanted < window) {
		if (allowed > 0 && wanted < (__u32)allowed)
			wanted = allowed;
		rewritten = (wanted + (1U << scale) - 1) >> scale;
		if (rewritten < packet->window)
			rewrite_window(skb, packet, rewritten);
		window = (__u32)packet->window << scale;
	}
	if ((__s32)window > allowed)
		flow->right_edge = packet->acknowledgement + window;
	slot->window = window;
	slot->clamp = wanted;
}

/* Packets of guests: their acknowledgements. */
SEC("classifier")
int from_guest(struct __sk_buff *skb)
{
	struct control *control = guard_control();
	struct packet packet = {};
	__u64 now = bpf_ktime_get_ns();
	struct flow *flow;
	struct slot *slot;
	__u32 wanted;

	if (!control || !parse(skb, &packet, 1))
		return GUARD_TCX_NEXT;
	if (packet.flags & TCP_SYN) {
		on_guest_syn(skb, control, &packet, now);
		return GUARD_TCX_NEXT;
	}
	flow = bpf_map_lookup_elem(&flows, &packet.key);
	if (!flow)
		return GUARD_TCX_NEXT;
	slot = slot_again(control, flow, &packet, now);
	if (slot && packet.flags & TCP_ACK) {
		flow->acknowledged = packet.acknowledgement;
		start_flow(control, flow, slot, &packet, slot->received - flow->seen, now);
		flow->seen = slot->received;
		wanted = wanted_window(control, slot, &flow->starting, now);
		if (!wanted && holds_first_window(control, flow, slot, now))
			wanted = flow->first_window;
		limit(skb, flow, slot, &packet, wanted);
		slot->updated_ns = now;
		mark_updated(flow->slot);
	}
	if (has_ended(flow, packet.flags, 1))
		close_flow(control, flow, &packet.key);
	return GUARD_TCX_NEXT;
}

/* Counts the data of a packet to a guest. */
static __always_inline void count(struct flow *flow, struct slot *slot,
				  const struct packet *packet)
{
	/* An end takes a number, and counts as a byte, as in the kernel. */
	__u32 len = packet->payload + !!(packet->flags & TCP_FIN);
	__s32 gap = packet->sequence - flow->next;
	__s32 more = gap + len;

	if (!len)
		return;
	/* The guest drops what it has not allowed, such as forged segments. */
	if ((__s32)(packet->sequence + packet->payload - flow->right_edge) > 0)
		return;
	if (gap > 0)
		slot->out_of_order += 1;
	if (more > 0) {
		slot->received += more;
		flow->next += more;
	}
}

/* Opens a connection whose handshake this packet to the guest completes, or its second part. */
static __always_inline void complete_handshake(struct __sk_buff *skb, struct control *control,
					       const struct packet *packet, __u64 now)
{
	struct flow *flow = bpf_map_lookup_elem(&half_open, &packet->key);
	struct syn_options options = {};

	if (!flow || !(packet->flags & TCP_ACK) || packet->flags & TCP_RST ||
	    packet->acknowledgement - flow->own_next > flow->syn_payload)
		return;
	if (flow->is_passive) {
		if (!(packet->flags & TCP_SYN) && packet->sequence == flow->next)
			open_flow(control, flow, packet, now);
	} else if (packet->flags & TCP_SYN) {
		/* The options of the SYN-ACK tell the scaling. */
		parse_options(skb, packet, &options);
		flow->is_scaled = flow->has_scale && options.has_scale;
		flow->next = packet->sequence + 1;
		open_flow(control, flow, packet, now);
	}
}

/* Packets to guests: data, and responses to their SYNs. */
SEC("classifier")
int to_guest(struct __sk_buff *skb)
{
	struct control *control = guard_control();
	struct packet packet = {};
	__u64 now = bpf_ktime_get_ns();
	struct flow *flow;
	struct slot *slot;

	if (!control || !parse(skb, &packet, 0))
		return GUARD_TCX_NEXT;
	flow = bpf_map_lookup_elem(&flows, &packet.key);
	if (!flow) {
		complete_handshake(skb, control, &packet, now);
		flow = bpf_map_lookup_elem(&flows, &packet.key);
	}
	/* The guest itself responds to a SYN on an open connection. */
	if (!flow || packet.flags & TCP_SYN)
		return GUARD_TCX_NEXT;
	/* Before this packet's data is counted. */
	packet.flags = valid_flags(flow, &packet);
	slot = slot_again(control, flow, &packet, now);
	if (slot)
		count(flow, slot, &packet);
	if (has_ended(flow, packet.flags, 2))
		close_flow(control, flow, &packet.key);
	return GUARD_TCX_NEXT;
}

#endif
