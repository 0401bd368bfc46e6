// The flows of the tool `tcp` in ns-3, in virtual time, over a path with a bottleneck, with cross traffic.
// Prints the rates of both in bit/s. Called by src/tools/simulated/ns3.rs.
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

using namespace ns3;

namespace {

constexpr uint32_t SEGMENT = 1448; // payload of a full segment: 40 bytes are headers, 12 timestamps
constexpr uint64_t OPEN = 64 << 20; // a non-limiting window

/// Bytes received on a port from a time on.
struct Count
{
    uint64_t bytes = 0;
    Time from;
};

void
Take(Count* count, Ptr<Socket> socket)
{
    while (Ptr<Packet> packet = socket->Recv())
    {
        if (packet->GetSize() == 0)
        {
            return;
        }
        if (Simulator::Now() >= count->from)
        {
            count->bytes += packet->GetSize();
        }
    }
}

void
Accept(Count* count, Ptr<Socket> socket, const Address&)
{
    socket->SetRecvCallback(MakeBoundCallback(&Take, count));
}

/// Listens on a port, and counts what it receives.
void
Listen(Ptr<Node> node, uint16_t port, Count* count)
{
    Ptr<Socket> listener = Socket::CreateSocket(node, TcpSocketFactory::GetTypeId());
    listener->SetAttribute("RcvBufSize", UintegerValue(OPEN));
    listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
    listener->Listen();
    listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                MakeBoundCallback(&Accept, count));
}

void
Fill(Ptr<Socket> socket, uint32_t)
{
    while (socket->GetTxAvailable() >= SEGMENT)
    {
        if (socket->Send(Create<Packet>(std::min<uint32_t>(socket->GetTxAvailable(), 64 << 10))) <= 0)
        {
            return;
        }
    }
}

void
Filled(Ptr<Socket> socket)
{
    Fill(socket, 0);
}

/// Starts an endless flow. Its window is the sender's buffer: ns-3.37 crashes when it retransmits into a
/// full receive window.
void
Begin(Ptr<Node> node, Address to, uint64_t room)
{
    Ptr<Socket> socket = Socket::CreateSocket(node, TcpSocketFactory::GetTypeId());
    socket->SetAttribute("SndBufSize", UintegerValue(room));
    socket->SetAttribute("SegmentSize", UintegerValue(SEGMENT));
    socket->SetConnectCallback(MakeCallback(&Filled), MakeNullCallback<void, Ptr<Socket>>());
    socket->SetSendCallback(MakeCallback(&Fill));
    socket->Connect(to);
}

/// Link between two nodes, with its only queue, in bytes, at the near end.
NetDeviceContainer
Line(Ptr<Node> near, Ptr<Node> far, DataRate rate, Time delay, uint64_t queue)
{
    PointToPointHelper line;
    line.SetDeviceAttribute("DataRate", DataRateValue(rate));
    line.SetDeviceAttribute("Mtu", UintegerValue(1500));
    line.SetChannelAttribute("Delay", TimeValue(delay));
    line.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue(std::to_string(queue) + "B"));
    return line.Install(near, far);
}

} // namespace

int
main(int argc, char* argv[])
{
    uint64_t rate = 100000000, queue = 500000, window = 0, crossWindow = 0;
    uint32_t streams = 1, cross = 0, seed = 1;
    double delay = 0.029, lead = 2, time = 60;
    std::string congestion = "reno";
    CommandLine line;
    line.AddValue("rate", "rate of the bottleneck, bit/s", rate);
    line.AddValue("delay", "one-way delay, s", delay);
    line.AddValue("queue", "buffer of the bottleneck, bytes", queue);
    line.AddValue("streams", "number of flows", streams);
    line.AddValue("window", "window of each flow, bytes; 0: unlimited", window);
    line.AddValue("cross", "number of cross flows, which start earlier", cross);
    line.AddValue("cross-window", "window of each cross flow, bytes; 0: unlimited", crossWindow);
    line.AddValue("lead", "head start of the cross flows, s", lead);
    line.AddValue("time", "sending time, s", time);
    line.AddValue("congestion", "cubic or reno", congestion);
    line.AddValue("seed", "seed of the start times", seed);
    line.Parse(argc, argv);

    RngSeedManager::SetRun(seed);
    auto type = congestion == "cubic" ? TcpCubic::GetTypeId() : TcpLinuxReno::GetTypeId();
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(type));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));

    NodeContainer nodes(5); // sender, cross sender, two routers, receiver
    InternetStackHelper().Install(nodes);
    const DataRate fast("10Gbps");
    const uint64_t wide = 256 << 20;
    std::vector<NetDeviceContainer> lines = {
        Line(nodes.Get(0), nodes.Get(2), fast, Time(0), wide),
        Line(nodes.Get(1), nodes.Get(2), fast, Time(0), wide),
        Line(nodes.Get(2), nodes.Get(3), DataRate(rate), Seconds(delay), queue),
        Line(nodes.Get(3), nodes.Get(4), fast, Time(0), wide),
    };
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    Ipv4Address receiver;
    TrafficControlHelper control;
    for (auto& devices : lines)
    {
        receiver = addresses.Assign(devices).GetAddress(1);
        control.Uninstall(devices); // packets queue at the links only
        addresses.NewNetwork();
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    Count ownCount, crossCount;
    ownCount.from = crossCount.from = Seconds(lead);
    Listen(nodes.Get(4), 5000, &ownCount);
    Listen(nodes.Get(4), 5001, &crossCount);
    const uint64_t room = 4 * static_cast<uint64_t>(rate / 8 * 2 * delay) + 2 * queue + (256 << 10);
    auto begin = [&](uint32_t node, uint16_t port, uint64_t window, double at) {
        InetSocketAddress to(receiver, port);
        Simulator::Schedule(Seconds(at), &Begin, nodes.Get(node), to, window ? window : room);
    };
    // Staggered, as between real hosts.
    Ptr<UniformRandomVariable> later = CreateObject<UniformRandomVariable>();
    for (uint32_t flow = 0; flow < cross; flow++)
    {
        begin(1, 5001, crossWindow, later->GetValue(0, 0.1));
    }
    for (uint32_t flow = 0; flow < streams; flow++)
    {
        begin(0, 5000, window, lead + later->GetValue(0, 0.01));
    }
    Simulator::Stop(Seconds(lead + time));
    Simulator::Run();
    std::cout << ownCount.bytes * 8 / time << " " << crossCount.bytes * 8 / time << std::endl;
    Simulator::Destroy();
    return 0;
}
