// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Another program of a cgroup: enables a callback of connections, and changes them in it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define SOL_TCP 6
#define TCP_CONGESTION 13
#define TEST_PORT 7800 /* PORT in guard.rs */

SEC("sockops")
int other(struct bpf_sock_ops *ctx)
{
	char reno[] = "reno";

	/* Connections of other tests are left alone. */
	if (ctx->local_port != TEST_PORT)
		return 1;
	switch (ctx->op) {
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		bpf_sock_ops_cb_flags_set(ctx,
					  ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_RTT_CB:
		bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno));
		break;
	}
	return 1;
}
