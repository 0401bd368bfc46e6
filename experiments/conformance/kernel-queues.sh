#!/bin/sh
# Runs the cases of scripts/kernel-queues as init of the emulated machine. Not for use by hand.
#
#   a, c (senders) -- r (router) -- b (receiver)
#
# The discipline under test is at the router's interface to b. netem at the router's interfaces to a
# and c delays the reverse path, on links of their own. Each figure is one line at the console:
# "row", case, parameters, figure, unit, run, value, separated by tabs. The first failure ends the run.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin TC_LIB_DIR=/tables
/bin/busybox --install -s /bin
# The shell of busybox prefers its own ip.
ip() { /usr/bin/ip "$@"; }
exec 2>&1
step=mounts
trap 'echo "failed: $step"; sleep 1; poweroff -f; sleep 60' EXIT
fail() {
    step="$step: $*"
    exit 1
}
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
echo 1 > /proc/sys/kernel/printk

step=modules
while read -r module; do insmod "/modules/$module"; done < /modules/order
step=hosts
mkdir -p /run/netns
for host in a c r b; do ip netns add $host; done
at() { ip netns exec "$@"; }
at r sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
subnet=1
for host in a c b; do
    ip link add v$host netns $host type veth peer name r$host netns r
    ip -n $host link set lo up
    ip -n $host addr add 10.9.$subnet.2/24 dev v$host
    ip -n r addr add 10.9.$subnet.1/24 dev r$host
    # Packets of at most 1500 bytes: no segmentation or aggregation by the interface.
    at $host ethtool -K v$host tso off gso off gro off
    at r ethtool -K r$host tso off gso off gro off
    ip -n $host link set v$host up
    ip -n r link set r$host up
    ip -n $host route add default via 10.9.$subnet.1
    at $host sh -c 'echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save
        echo "4096 131072 67108864" > /proc/sys/net/ipv4/tcp_rmem
        echo "4096 16384 67108864" > /proc/sys/net/ipv4/tcp_wmem'
    subnet=$((subnet + 1))
done
to=10.9.3.2
at b iperf3 -s -p 5201 > /dev/null &
at b iperf3 -s -p 5202 > /dev/null &
sleep 1

# row FIGURE UNIT VALUE, for the case, parameters and run in force.
row() {
    [ -n "$3" ] || fail "no value of $1"
    printf 'row\t%s\t%s\t%s\t%s\t%s\t%s\n' "$case" "$parameters" "$1" "$2" "$run" "$3"
}
# Names a case. tc counts the 14 bytes of the Ethernet header of each packet, the case does not.
begin() {
    case=$1
    parameters=$2
    step="$case, $parameters, run $run"
    for interface in ra rc rb; do
        at r tc qdisc del dev $interface root 2>/dev/null || true
        at r tc qdisc del dev $interface ingress 2>/dev/null || true
    done
    set_ecn 0
}
frames() { echo $(($1 * 1514 / 1500)); }
set_ecn() { for host in a b; do at $host sh -c "echo $1 > /proc/sys/net/ipv4/tcp_ecn"; done; }
delay_acks() { at r tc qdisc replace dev "$1" root netem delay "$2" limit 100000; }
# behind KBIT DISCIPLINE: a link of this rate, whose queue is the discipline.
behind() {
    rate=$(frames "$1")
    shift
    at r tc qdisc add dev rb root handle 1: tbf rate "${rate}kbit" burst 3028 limit 100000000
    at r tc qdisc add dev rb parent 1:1 handle 10: "$@"
    # The timer of pie starts half a second after the discipline.
    sleep 1
}
# policed BITS BYTES: act_police on arrival at the router.
policed() {
    at r tc qdisc add dev ra ingress
    at r tc filter add dev ra parent ffff: protocol all matchall \
        action police rate "$1" burst "$2" conform-exceed drop
}
# counted WORD: what the discipline under test counts, as "dropped" or "ecn_mark".
counted() {
    at r tc -s qdisc show dev rb | tr -d ',()' | awk -v word="$1" -v handle="${2:-10:}" '
        /^qdisc/ {on = $3 == handle}
        on {for (i = 1; i < NF; i++) if ($i == word) value = $(i + 1)}
        END {print value}'
}
# Datagrams: sends at PER_SECOND, COUNT of SIZE bytes, and leaves the report in /tmp/NAME.
start_datagrams() {
    name=$1 port=$2 per_second=$3 count=$4 size=$5 ect=${6:-}
    at b datagrams receive "$port" "$per_second" "$count" 5 > "/tmp/$name" &
    eval "receiver_$name=$!"
    sleep 0.2
    # shellcheck disable=SC2086  # no argument if empty
    at a datagrams send $to "$port" "$per_second" "$count" "$size" $ect &
}
end_datagrams() {
    eval "wait \$receiver_$1" || fail "datagrams $1: $(tail -n 1 "/tmp/$1")"
}
# figure NAME REPORTED FIGURE: a figure of a report, by its name there.
figure() {
    row "$3" "$(awk -F '\t' -v f="$2" '$1 == f {print $2}' "/tmp/$1")" \
        "$(awk -F '\t' -v f="$2" '$1 == f {print $3}' "/tmp/$1")"
}
constant() {
    start_datagrams constant 7000 "$@"
    end_datagrams constant
}
# One TCP flow for 20 s beside 20 small datagrams a second, which measure the delay.
flow() {
    congestion=$1
    start_datagrams probe 7001 20 400 64
    at a iperf3 -c $to -p 5201 -C "$congestion" -t 20 -f k > /tmp/flow || fail "$(tail -n 1 /tmp/flow)"
    end_datagrams probe
    grep -q receiver /tmp/flow || fail "no rate in the output of iperf3"
    row "goodput, $congestion" Mbit/s "$(awk '/receiver/ {print $7 / 1000}' /tmp/flow)"
    row "retransmits, $congestion" segments "$(awk '/sender/ {print $9}' /tmp/flow)"
    figure probe "delay mean" "delay mean, $congestion"
    figure probe "delay p95" "delay p95, $congestion"
}

check() {
    begin check "40 ms, no queue, ping and 10 Mbit/s"
    delay_acks ra 40ms
    # The first one also waits for ARP.
    at a ping -c 2 $to > /dev/null || fail "ping"
    output=$(at a ping -i 0.1 -c 50 $to) || fail "ping"
    for figure in min:1 avg:2 max:3; do
        row "ping ${figure%:*}" ms "$(echo "$output" | sed -n 's/^rtt.*= //p' | cut -d / -f "${figure#*:}")"
    done
    constant 833.3333 4167 1500
    for f in "sent rate" "received rate" "delay p50" "delay p99" "delay max"; do figure constant "$f" "$f"; done
    behind 10000 bfifo limit 5000000
    constant 1041.6667 2083 1500
    figure constant "received rate" "rate of a full 10 Mbit/s link"
}
overload() { constant 1041.6667 20833 1500 "$@"; }
by_time() {
    for window in 0-5 5-10 10-15 15-20; do
        figure constant "lost $window s" "lost $window s"
        figure constant "delay mean $window s" "delay mean $window s"
    done
}
a_fifo() {
    begin fifo "10 Mbit/s, 50 kB; datagrams at 12.5 Mbit/s for 20 s"
    behind 10000 bfifo limit "$(frames 50000)"
    overload
    for f in lost "delay mean" "delay p95"; do figure constant "$f" "$f"; done
}
b_codel() {
    begin codel "10 Mbit/s, target 5 ms, interval 100 ms; datagrams at 12.5 Mbit/s for 20 s"
    behind 10000 codel target 5ms interval 100ms
    overload
    by_time
    begin codel "20 Mbit/s, 40 ms; one flow, 20 s"
    delay_acks ra 40ms
    behind 20000 codel target 5ms interval 100ms noecn
    flow cubic
    row dropped packets "$(counted dropped)"
    begin codel "20 Mbit/s, 40 ms, ecn; one flow, 20 s"
    delay_acks ra 40ms
    set_ecn 1
    behind 20000 codel target 5ms interval 100ms ecn
    flow cubic
    row dropped packets "$(counted dropped)"
    row marked packets "$(counted ecn_mark)"
}
c_fq_codel() {
    begin fq_codel "20 Mbit/s, 40 ms; one flow beside datagrams at 20 Mbit/s, 20 s"
    delay_acks ra 40ms
    behind 20000 fq_codel
    start_datagrams flood 7002 1666.6667 33333 1500
    flow cubic
    end_datagrams flood
    figure flood "received rate while sending" "received rate, datagrams"
    figure flood lost "lost, datagrams"
    figure flood "delay mean" "delay mean, datagrams"
    begin fq_codel "20 Mbit/s; flows of 20 ms and 80 ms, 20 s"
    delay_acks ra 20ms
    delay_acks rc 80ms
    behind 20000 fq_codel
    two_flows
}
two_flows() {
    at c iperf3 -c $to -p 5202 -C cubic -t 20 -f k > /tmp/other &
    other=$!
    at a iperf3 -c $to -p 5201 -C cubic -t 20 -f k > /tmp/flow || fail "$(tail -n 1 /tmp/flow)"
    wait $other || fail "$(tail -n 1 /tmp/other)"
    near=$(awk '/receiver/ {print $7 / 1000}' /tmp/flow)
    far=$(awk '/receiver/ {print $7 / 1000}' /tmp/other)
    row "goodput, 20 ms" Mbit/s "$near"
    row "goodput, 80 ms" Mbit/s "$far"
    row "Jain's index" 1 "$(awk -v x="$near" -v y="$far" '
        BEGIN {print (x + y) * (x + y) / (2 * (x * x + y * y))}')"
}
d_pie() {
    for ecn in noecn ecn; do
        begin pie "10 Mbit/s, $ecn; datagrams at 12.5 Mbit/s for 20 s"
        behind 10000 pie $ecn
        if [ $ecn = ecn ]; then overload ect; else overload; fi
        by_time
        figure constant marked marked
        begin pie "20 Mbit/s, 40 ms, $ecn; one flow, 20 s"
        delay_acks ra 40ms
        if [ $ecn = ecn ]; then set_ecn 1; fi
        behind 20000 pie $ecn
        flow cubic
        row dropped packets "$(counted dropped)"
        row marked packets "$(counted ecn_mark)"
    done
}
e_bucket() {
    begin tbf "10 Mbit/s, burst 64 kB; 100 datagrams back to back"
    at r tc qdisc add dev rb root handle 1: tbf rate "$(frames 10000)kbit" \
        burst "$(frames 64000)" limit 10000000
    constant 0 100 1500
    for f in "passed at once" "rate after burst"; do figure constant "$f" "$f"; done
    for congestion in cubic bbr; do
        begin tbf "10 Mbit/s, burst 64 kB, queue 50 kB, 40 ms; one flow, 20 s"
        delay_acks ra 40ms
        at r tc qdisc add dev rb root handle 1: tbf rate "$(frames 10000)kbit" \
            burst "$(frames 64000)" limit "$(frames 50000)"
        flow $congestion
    done
    for load in 0.95:791.6667:15833 1.25:1041.6667:20833; do
        begin police "10 Mbit/s, burst 64 kB; datagrams at load ${load%%:*} for 20 s"
        policed "$police_rate" "$police_burst"
        constant "$(echo $load | cut -d : -f 2)" "${load##*:}" 1500
        figure constant lost lost
    done
    for congestion in cubic bbr; do
        begin police "10 Mbit/s, burst 64 kB, 40 ms; one flow, 20 s"
        delay_acks ra 40ms
        policed "$police_rate" "$police_burst"
        flow $congestion
    done
}
f_netem() {
    for setting in "delay 20ms 5ms" "delay 20ms 5ms distribution normal" "delay 10ms reorder 1%" \
        "duplicate 1%" "loss 1%" "slot 5ms 5ms"; do
        begin netem "$setting; 1000 datagrams of 200 bytes a second for 20 s"
        # shellcheck disable=SC2086  # several words
        at r tc qdisc add dev rb root handle 1: netem $setting limit 100000
        constant 1000 20000 200
        for f in lost duplicated reordered "delay mean" "delay p5" "delay p25" "delay p50" "delay p75" \
            "delay p95" "delay p99" "delay max" "packets per group" "gap between groups"; do
            figure constant "$f" "$f"
        done
    done
}
# At ingress, act_police counts packets without the Ethernet header.
police_rate=10000kbit police_burst=64000
cases='check a_fifo b_codel c_fq_codel d_pie e_bucket f_netem'
read -r wanted runs < /cases
[ "$wanted" = all ] || cases="check $wanted"
for run in $(seq 1 "$runs"); do
    for name in $cases; do $name; done
done
echo complete
trap - EXIT
poweroff -f
