// Moves one file over UDT 4: the tool `udt` of the lab.
//
//   udt receive PORT DIR         receives one file at a time, until killed
//   udt send HOST PORT FILE
#include <fstream>
#include <iostream>
#include <string>

#include <arpa/inet.h>
#include <sys/stat.h>
#include <udt/udt.h>

static int fail(const char *what) {
    std::cerr << "udt: " << what << ": " << UDT::getlasterror().getErrorMessage() << std::endl;
    return 1;
}

static sockaddr_in address(const char *host, const char *port) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(std::stoi(port));
    inet_pton(AF_INET, host, &to.sin_addr);
    return to;
}

// Receives the size (8 bytes) and the content, and answers with one byte.
static int receive(const char *port, const std::string &dir) {
    UDTSOCKET listener = UDT::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in here = address("0.0.0.0", port);
    if (UDT::bind(listener, (sockaddr *)&here, sizeof here) == UDT::ERROR) return fail("bind");
    if (UDT::listen(listener, 64) == UDT::ERROR) return fail("listen");
    for (;;) {
        UDTSOCKET from = UDT::accept(listener, nullptr, nullptr);
        if (from == UDT::INVALID_SOCK) return fail("accept");
        int64_t size = 0, offset = 0;
        for (int got = 0; got < 8;) {
            int n = UDT::recv(from, (char *)&size + got, 8 - got, 0);
            if (n == UDT::ERROR) return fail("recv");
            got += n;
        }
        std::fstream file(dir + "/data", std::ios::out | std::ios::binary | std::ios::trunc);
        if (UDT::recvfile(from, file, offset, size) != size) return fail("recvfile");
        file.close();
        char done = 1;
        UDT::send(from, &done, 1, 0);
    }
}

static int send(const char *host, const char *port, const char *name) {
    struct stat info;
    if (stat(name, &info) != 0) return fail(name);
    UDTSOCKET to = UDT::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in there = address(host, port);
    if (UDT::connect(to, (sockaddr *)&there, sizeof there) == UDT::ERROR) return fail("connect");
    int64_t size = info.st_size, offset = 0;
    if (UDT::send(to, (char *)&size, 8, 0) != 8) return fail("send");
    std::fstream file(name, std::ios::in | std::ios::binary);
    if (UDT::sendfile(to, file, offset, size) != size) return fail("sendfile");
    char done = 0;
    if (UDT::recv(to, &done, 1, 0) != 1 || done != 1) return fail("recv");
    UDT::close(to);
    return 0;
}

int main(int count, char **words) {
    UDT::startup();
    std::string mode = count > 1 ? words[1] : "";
    int code = 2;
    if (mode == "receive" && count == 4) code = receive(words[2], words[3]);
    else if (mode == "send" && count == 5) code = send(words[2], words[3], words[4]);
    else std::cerr << "udt receive PORT DIR | udt send HOST PORT FILE" << std::endl;
    UDT::cleanup();
    return code;
}
