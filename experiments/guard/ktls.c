// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Connections over the loopback interface with TLS in the kernel at both ends:
 *
 *     ktls CONNECTIONS BYTES
 *
 * BYTES are received on each, all at once, by processes of their own, and are compared. The keys
 * are fixed, as nothing is secret here. Ends with 1 if a byte differs or is missing.
 */
#include <arpa/inet.h>
#include <linux/tls.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SOL_TLS
#define SOL_TLS 282
#endif
#ifndef TCP_ULP
#define TCP_ULP 31
#endif

static void check(int is_true, const char *what)
{
	if (is_true)
		return;
	perror(what);
	exit(1);
}

/* Gives one direction of a connection to the kernel's TLS. */
static void use_tls(int socket, int direction)
{
	struct tls12_crypto_info_aes_gcm_128 keys = {
		.info = { TLS_1_2_VERSION, TLS_CIPHER_AES_GCM_128 },
	};

	memset(keys.key, 1, sizeof(keys.key));
	memset(keys.salt, 2, sizeof(keys.salt));
	check(!setsockopt(socket, SOL_TCP, TCP_ULP, "tls", sizeof("tls")), "TCP_ULP");
	check(!setsockopt(socket, SOL_TLS, direction, &keys, sizeof(keys)), "TLS_TX or TLS_RX");
}

static unsigned char byte_at(long position)
{
	return position % 251;
}

static void send_all(int socket, long count)
{
	unsigned char block[16384];

	for (long sent = 0; sent < count;) {
		long part = count - sent < (long)sizeof(block) ? count - sent : (long)sizeof(block);

		for (long at = 0; at < part; at++)
			block[at] = byte_at(sent + at);
		part = send(socket, block, part, 0);
		check(part > 0, "send");
		sent += part;
	}
}

static void receive_all(int socket, long count)
{
	unsigned char block[16384];

	for (long received = 0; received < count;) {
		long part = recv(socket, block, sizeof(block), 0);

		check(part > 0, "recv");
		for (long at = 0; at < part; at++)
			check(block[at] == byte_at(received + at), "a byte differs");
		received += part;
	}
}

static void connect_and_receive(const struct sockaddr_in *address, long count)
{
	int client = socket(AF_INET, SOCK_STREAM, 0);

	check(client >= 0, "socket");
	check(!connect(client, (const struct sockaddr *)address, sizeof(*address)), "connect");
	use_tls(client, TLS_RX);
	/* Both ends are ready before the first record. */
	check(send(client, "r", 1, 0) == 1, "send");
	receive_all(client, count);
	close(client);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7802) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), failed = 0, status;
	int connections = argc == 3 ? atoi(argv[1]) : 0;
	long count = argc == 3 ? atol(argv[2]) : 0;

	if (connections < 1 || count < 1) {
		fprintf(stderr, "ktls CONNECTIONS BYTES\n");
		return 2;
	}
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	check(!bind(listener, (struct sockaddr *)&address, sizeof(address)), "bind");
	check(!listen(listener, connections), "listen");
	for (int at = 0; at < connections; at++) {
		if (!fork()) {
			connect_and_receive(&address, count);
			exit(0);
		}
	}
	for (int at = 0; at < connections; at++) {
		int server = accept(listener, NULL, NULL);
		char word;

		check(server >= 0, "accept");
		if (!fork()) {
			check(recv(server, &word, 1, 0) == 1, "recv");
			use_tls(server, TLS_TX);
			send_all(server, count);
			exit(0);
		}
		close(server);
	}
	for (int at = 0; at < 2 * connections; at++) {
		check(wait(&status) > 0, "wait");
		failed |= status;
	}
	return failed != 0;
}
