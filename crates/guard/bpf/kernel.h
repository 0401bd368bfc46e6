/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Kernel structures, with the fields that are read only. Their offsets are those of the running
 * kernel: the loader relocates them with its BTF (CO-RE).
 */
#ifndef GUARD_KERNEL_H
#define GUARD_KERNEL_H

#include <linux/types.h>

#define RELOCATED __attribute__((preserve_access_index))

struct kernfs_node {
	__u64 id;
} RELOCATED;

struct cgroup {
	struct kernfs_node *kn;
} RELOCATED;

struct sock_cgroup_data {
	struct cgroup *cgroup;
} RELOCATED;

struct ns_common {
	unsigned int inum;
} RELOCATED;

struct net {
	struct ns_common ns;
} RELOCATED;

typedef struct {
	struct net *net;
} RELOCATED possible_net_t;

struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
} RELOCATED;

struct sock_common {
	unsigned short skc_family;
	volatile unsigned char skc_state;
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	possible_net_t skc_net;
} RELOCATED;

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
	struct sock_cgroup_data sk_cgrp_data;
} RELOCATED;

struct inet_sock {
	struct sock sk;
} RELOCATED;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
} RELOCATED;

struct minmax_sample {
	__u32 t;
	__u32 v;
} RELOCATED;

struct minmax {
	struct minmax_sample s[3];
} RELOCATED;

struct tcp_options_received {
	__u16 dsack : 1; /* the next packet has a DSACK */
} RELOCATED;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct tcp_options_received rx_opt;
	__u64 bytes_received;
	__u32 snd_una;
	__u32 write_seq;
	__u32 srtt_us;
	__u64 tcp_mstamp;
	struct minmax rtt_min;
	__u32 rcv_wnd;
	__u32 window_clamp;
	__u32 rcv_ooopack;
	__u16 advmss;
	struct {
		__u32 rtt_us;
	} rcv_rtt_est;
} RELOCATED;

struct task_struct {
	int tgid;
	struct task_struct *group_leader;
	char comm[16];
} RELOCATED;

struct socket {
	struct sock *sk;
} RELOCATED;

struct file;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} RELOCATED;

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} RELOCATED;

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct file *file;
} RELOCATED;

#endif
