"""A virtual machine with Debian's Linux 6.1, in QEMU by software emulation.

Its file system is in memory: busybox, the files that are asked for, and modules. Commands are sent
to its console. Needs qemu-system-x86, busybox-static, cpio and kmod (scripts/setup bench).
"""

import os
import shutil
import subprocess
import sys
import tempfile

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read module; do insmod /modules/$module; done </modules/order
stty -echo </dev/ttyS0
{setup}
echo ready
while read command; do
    $command
    echo end $?
done </dev/ttyS0
"""


class Guest:
    """A running machine. `files` maps paths of the host to paths in the guest; `setup` is shell."""

    def __init__(self, files, modules, setup, prefix=(), network=()):
        self.directory = tempfile.TemporaryDirectory()
        kernel = os.path.join(os.environ.get("CACHE", "target/kernel-queues"), "kernel")
        fetch = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fetch-kernel")
        release = subprocess.check_output([fetch, kernel], text=True).strip()
        self.build(kernel, release, files, modules, setup)
        self.machine = subprocess.Popen(
            [*prefix, "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "1",
             "-m", "512", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
             "-serial", "stdio", *network,
             "-kernel", f"{kernel}/root/boot/vmlinuz-{release}",
             "-initrd", f"{self.directory.name}/initramfs",
             "-append", "console=ttyS0 quiet loglevel=0 panic=-1 mitigations=off"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.read_until("ready")
        except BaseException:
            self.end()
            raise

    def build(self, kernel, release, files, modules, setup):
        """Builds the file system."""
        root = f"{self.directory.name}/root"
        for name in ("bin", "dev", "modules", "proc", "sys", "tmp"):
            os.makedirs(f"{root}/{name}")
        copies = [("/bin/busybox", "/bin/busybox"), *files.items()]
        for program in files:
            # A static program has no libraries, and ldd fails.
            shown = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
            copies += [(word, word) for word in shown.stdout.split() if word.startswith("/")]
        order = []
        if modules:
            shown = subprocess.check_output(
                ["modprobe", "-d", f"{kernel}/root", "-S", release, "--show-depends", "-a",
                 *modules], text=True)
            loaded = [line.split()[1] for line in shown.splitlines() if line.startswith("insmod")]
            order = list(dict.fromkeys(loaded))
        copies += [(path, f"/modules/{os.path.basename(path)}") for path in order]
        for source, target in copies:
            os.makedirs(os.path.dirname(root + target), exist_ok=True)
            shutil.copy(source, root + target)
        with open(f"{root}/modules/order", "w") as file:
            file.writelines(f"{os.path.basename(path)}\n" for path in order)
        with open(f"{root}/init", "w") as file:
            file.write(INIT.replace("{setup}", setup))
        os.chmod(f"{root}/init", 0o755)
        pack = f"cd {root} && find . | cpio -o -H newc --quiet | gzip -1 >../initramfs"
        subprocess.run(["sh", "-c", pack], check=True)

    def read_until(self, word):
        """The lines before one that begins with a word, and that line."""
        lines = []
        for line in self.machine.stdout:
            if line.startswith(word):
                return lines, line
            lines.append(line)
        sys.exit("the guest has ended: " + "".join(lines[-5:]))

    def run(self, *command):
        """Runs a command, and returns its output."""
        self.machine.stdin.write(" ".join(command) + "\n")
        self.machine.stdin.flush()
        lines, end = self.read_until("end")
        if end.split() != ["end", "0"]:
            sys.exit("failed in the guest: " + "".join(lines))
        return "".join(lines)

    def end(self):
        self.machine.kill()
        self.machine.wait()
        self.directory.cleanup()
