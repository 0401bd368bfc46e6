//! Packets as the kernel passes them: an offload header, then an IPv4 packet, possibly a
//! super-packet of many TCP segments or UDP datagrams.
//!
//! Parses what a link needs, and extracts segments. Other protocols than IPv4 are rejected.

use bankfull_sim::{Burst, Ecn};
use bankfull_sys::tun::OFFLOAD_HEADER_BYTES;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;

/// `VIRTIO_NET_HDR_GSO_TCPV4` and `VIRTIO_NET_HDR_GSO_UDP_L4`, in the low bits of the offload
/// header's second byte. (linux/virtio_net.h)
const GSO_TCPV4: u8 = 1;
const GSO_UDP_L4: u8 = 5;
/// `VIRTIO_NET_HDR_GSO_ECN`, a flag in the same byte: CWR belongs to the first segment only. Under
/// AccECN it is part of a counter, and belongs to all. (linux/virtio_net.h)
const GSO_ECN: u8 = 0x80;

/// Largest header before the payload: offload, IPv4 and TCP with options. (RFC 791, RFC 9293: 15
/// words of 4 bytes each)
pub(crate) const MAX_HEADER_BYTES: usize = OFFLOAD_HEADER_BYTES + 60 + 60;

/// IP protocol numbers, checksum offsets, and the UDP header's size. (RFC 9293, RFC 768)
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_ICMP: u8 = 1;
const TCP_CHECKSUM_AT: usize = 16;
const UDP_CHECKSUM_AT: usize = 6;
const UDP_HEADER_BYTES: usize = 8;

/// TCP flags. (RFC 9293, RFC 3168)
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_ACK: u8 = 0x10;
const TCP_CWR: u8 = 0x80;

/// Flag of packets that must not be fragmented. (RFC 791)
const IP_DONT_FRAGMENT: u16 = 0x4000;

/// Type and code of the message, quoted bytes behind the IP header, time to live. (RFC 792, RFC
/// 1191)
const ICMP_FRAGMENTATION_NEEDED: [u8; 2] = [3, 4];
const ICMP_QUOTED_BYTES: usize = 8;
const ICMP_TTL: u8 = 64;

/// TCP option of selective acknowledgement. (RFC 2018)
const TCP_OPTION_SACK: u8 = 5;

/// ECN field of the IP header's second byte; all ones: congestion experienced. (RFC 3168)
const ECN_MASK: u8 = 3;

/// Key of a flow in one direction: addresses, protocol and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// IP protocol number: 6 is TCP, 17 is UDP, 1 is ICMP.
    pub protocol: u8,
    /// Source port; zero for protocols without ports.
    pub source_port: u16,
    /// Destination port; zero for protocols without ports.
    pub destination_port: u16,
}

impl FlowKey {
    /// Hash of the flow, the same in every run.
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }
}

/// A packet with its offload header.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) flow: FlowKey,
    pub(crate) burst: Burst,
    /// Bytes of the offload, IP and TCP or UDP headers; used for super-packets only.
    header_bytes: usize,
    ip_header_bytes: usize,
    /// Payload bytes of each segment but the last.
    segment_bytes: usize,
}

/// Segments of a packet ready to be written: their own header, and the payload.
pub(crate) struct SubPacket<'p> {
    header: [u8; MAX_HEADER_BYTES],
    header_bytes: usize,
    payload: &'p [u8],
}

impl SubPacket<'_> {
    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..self.header_bytes]
    }

    pub(crate) fn payload(&self) -> &[u8] {
        self.payload
    }
}

impl Packet {
    /// Parses a packet; `None` if truncated or not IPv4.
    pub(crate) fn parse(bytes: Vec<u8>) -> Option<Self> {
        let (offload, ip) = bytes.split_at_checked(OFFLOAD_HEADER_BYTES)?;
        let ip_header_bytes = usize::from(*ip.first()? & 0x0f) * 4;
        if ip[0] >> 4 != 4 || !(20..=ip.len()).contains(&ip_header_bytes) {
            return None;
        }
        let total = usize::from(be16(ip, 2)?);
        if total < ip_header_bytes || total > ip.len() {
            return None;
        }
        let protocol = ip[9];
        let ports = if matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP) && !is_fragment(ip) {
            (be16(ip, ip_header_bytes)?, be16(ip, ip_header_bytes + 2)?)
        } else {
            (0, 0)
        };
        let flow = FlowKey {
            source: Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]),
            destination: Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]),
            protocol,
            source_port: ports.0,
            destination_port: ports.1,
        };
        let segment_bytes = usize::from(u16::from_le_bytes([offload[4], offload[5]]));
        let is_super = matches!(
            (offload[1] & !GSO_ECN, protocol),
            (GSO_TCPV4, PROTOCOL_TCP) | (GSO_UDP_L4, PROTOCOL_UDP)
        );
        let mut packet = Self {
            flow,
            burst: Burst::packet(total as u32),
            header_bytes: OFFLOAD_HEADER_BYTES + total,
            ip_header_bytes,
            segment_bytes,
            bytes,
        };
        if is_super && segment_bytes > 0 {
            packet.parse_segments(total)?;
        }
        Some(packet)
    }

    fn parse_segments(&mut self, total: usize) -> Option<()> {
        let ip = &self.bytes[OFFLOAD_HEADER_BYTES..];
        let own_header = match self.flow.protocol {
            PROTOCOL_UDP => UDP_HEADER_BYTES,
            _ => Some(usize::from(ip.get(self.ip_header_bytes + 12)? >> 4) * 4)
                .filter(|&bytes| bytes >= 20)?,
        };
        let headers = self.ip_header_bytes + own_header;
        if headers > total {
            return None;
        }
        let payload = total - headers;
        let segments = payload.div_ceil(self.segment_bytes).max(1);
        let last = payload - (segments - 1) * self.segment_bytes;
        self.header_bytes = OFFLOAD_HEADER_BYTES + headers;
        self.burst = Burst {
            segments: segments as u32,
            segment_bytes: (headers + self.segment_bytes) as u32,
            last_bytes: (headers + last) as u32,
        };
        Some(())
    }

    /// True if its segments are UDP datagrams.
    pub(crate) fn is_datagrams(&self) -> bool {
        self.flow.protocol == PROTOCOL_UDP
    }

    /// Bytes on the wire of some segments, headers included.
    pub(crate) fn wire_bytes(&self, first: u32, count: u32) -> u64 {
        (first..first + count).map(|segment| u64::from(self.burst.bytes_of(segment))).sum()
    }

    /// ECN codepoint of the IP header.
    pub(crate) fn ecn(&self) -> Ecn {
        match self.bytes[OFFLOAD_HEADER_BYTES + 1] & ECN_MASK {
            0 => Ecn::NotCapable,
            ECN_MASK => Ecn::Marked,
            _ => Ecn::Capable,
        }
    }

    /// Answer of a router whose next link takes packets of `mtu` bytes at most. (RFC 1191)
    ///
    /// `None` if the packet fits, or may be fragmented, which the emulator does not.
    pub(crate) fn too_long_for(&self, mtu: u32) -> Option<Self> {
        let ip = &self.bytes[OFFLOAD_HEADER_BYTES..];
        let may_fragment = be16(ip, 6)? & IP_DONT_FRAGMENT == 0;
        if self.burst.bytes_of(0) <= mtu || may_fragment || self.flow.protocol == PROTOCOL_ICMP {
            return None;
        }
        let quoted = &ip[..ip.len().min(self.ip_header_bytes + ICMP_QUOTED_BYTES)];
        let mut bytes = vec![0; OFFLOAD_HEADER_BYTES + 28];
        bytes.extend_from_slice(quoted);
        let total = bytes.len() - OFFLOAD_HEADER_BYTES;
        let (ip, icmp) = bytes[OFFLOAD_HEADER_BYTES..].split_at_mut(20);
        ip[0] = 0x45;
        put16(ip, 2, total as u16);
        ip[8] = ICMP_TTL;
        ip[9] = PROTOCOL_ICMP;
        ip[12..16].copy_from_slice(&self.flow.destination.octets());
        ip[16..20].copy_from_slice(&self.flow.source.octets());
        update_checksum(ip);
        icmp[..2].copy_from_slice(&ICMP_FRAGMENTATION_NEEDED);
        put16(icmp, 6, u16::try_from(mtu).unwrap_or(u16::MAX));
        put16(icmp, 2, !ones_sum(icmp, 0));
        Self::parse(bytes)
    }

    /// True for a TCP acknowledgement that a later one makes superfluous.
    ///
    /// It has no data, no flag but ACK, and no SACK block.
    pub(crate) fn is_pure_ack(&self) -> bool {
        let ip = &self.bytes[OFFLOAD_HEADER_BYTES..];
        let total = be16(ip, 2).map_or(0, usize::from);
        let Some(tcp) = ip.get(self.ip_header_bytes..total).filter(|tcp| tcp.len() >= 20) else {
            return false;
        };
        let header = usize::from(tcp[12] >> 4) * 4;
        let is_empty = self.flow.protocol == PROTOCOL_TCP && tcp.len() == header;
        is_empty && tcp[13] == TCP_ACK && !has_sack(&tcp[20..])
    }

    /// Extracts segments as a packet of their own, marked if congestion was experienced.
    pub(crate) fn extract(&self, first: u32, count: u32, is_marked: bool) -> SubPacket<'_> {
        let mut header = [0; MAX_HEADER_BYTES];
        let must_mark = is_marked && self.ecn() == Ecn::Capable;
        if count == self.burst.segments && !must_mark {
            return SubPacket { header, header_bytes: 0, payload: &self.bytes };
        }
        if count == self.burst.segments {
            let (own, payload) = self.bytes.split_at(OFFLOAD_HEADER_BYTES + self.ip_header_bytes);
            header[..own.len()].copy_from_slice(own);
            let ip = &mut header[OFFLOAD_HEADER_BYTES..own.len()];
            ip[1] |= ECN_MASK;
            update_checksum(ip);
            return SubPacket { header, header_bytes: own.len(), payload };
        }
        let all = &self.bytes[self.header_bytes..];
        let from = first as usize * self.segment_bytes;
        let to = all.len().min((first + count) as usize * self.segment_bytes);
        let payload = &all[from..to];
        let own = &mut header[..self.header_bytes];
        own.copy_from_slice(&self.bytes[..self.header_bytes]);
        if count == 1 {
            own[1] = 0;
            own[4..6].fill(0);
        }
        let (ip, transport) = own[OFFLOAD_HEADER_BYTES..].split_at_mut(self.ip_header_bytes);
        let transport_bytes = transport.len() + payload.len();
        put16(ip, 2, (self.ip_header_bytes + transport_bytes) as u16);
        // The kernel increments the identification of each segment of a super-packet.
        let identification = u16::from_be_bytes([ip[4], ip[5]]);
        put16(ip, 4, identification.wrapping_add(first as u16));
        if must_mark {
            ip[1] |= ECN_MASK;
        }
        update_checksum(ip);
        let checksum_at = if self.flow.protocol == PROTOCOL_UDP {
            put16(transport, 4, transport_bytes as u16);
            UDP_CHECKSUM_AT
        } else {
            self.extract_tcp_header(transport, first, count);
            TCP_CHECKSUM_AT
        };
        // Super-packets carry the checksum of the pseudo-header, which hardware completes.
        let start = transport_bytes as u32 + u32::from(self.flow.protocol);
        put16(transport, checksum_at, ones_sum(&ip[12..20], start));
        SubPacket { header, header_bytes: self.header_bytes, payload }
    }

    /// Adjusts the TCP header for some segments.
    fn extract_tcp_header(&self, tcp: &mut [u8], first: u32, count: u32) {
        let from = first * self.segment_bytes as u32;
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        tcp[4..8].copy_from_slice(&sequence.wrapping_add(from).to_be_bytes());
        if first > 0 && self.bytes[1] & GSO_ECN != 0 {
            tcp[13] &= !TCP_CWR;
        }
        if first + count < self.burst.segments {
            tcp[13] &= !(TCP_FIN | TCP_PSH);
        }
    }
}

/// True if TCP options contain a block of selective acknowledgement.
fn has_sack(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        match kind {
            0 => return false,
            1 => options = rest,
            &TCP_OPTION_SACK => return true,
            // A length below two, or beyond the header, is no option.
            _ => {
                let length = usize::from(rest.first().copied().unwrap_or(0));
                options = options.get(length.max(1)..).unwrap_or_default();
            }
        }
    }
    false
}

fn update_checksum(ip: &mut [u8]) {
    put16(ip, 10, 0);
    put16(ip, 10, !ones_sum(ip, 0));
}

/// True for a fragment other than the first, which has no ports.
fn is_fragment(ip: &[u8]) -> bool {
    be16(ip, 6).is_some_and(|field| field & 0x1fff != 0)
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Ones' complement sum of 16-bit words, the Internet checksum before inversion. (RFC 1071)
fn ones_sum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TCP packet of `payload` bytes, in segments of `segment` bytes unless zero.
    fn tcp(payload: usize, segment: u16) -> Vec<u8> {
        let mut bytes = vec![0; OFFLOAD_HEADER_BYTES];
        bytes[0] = 1;
        bytes[1] = if segment > 0 { GSO_TCPV4 } else { 0 };
        bytes[4..6].copy_from_slice(&segment.to_le_bytes());
        let total = (20 + 32 + payload) as u16;
        let mut ip = vec![0x45, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0];
        ip.extend([10, 77, 0, 1, 10, 77, 0, 2]);
        put16(&mut ip, 2, total);
        let sum = !ones_sum(&ip, 0);
        put16(&mut ip, 10, sum);
        let mut header = vec![0; 32];
        put16(&mut header, 0, 40_000);
        put16(&mut header, 2, 5201);
        header[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        header[12] = 8 << 4;
        header[13] = TCP_FIN | TCP_PSH | TCP_CWR | 0x10;
        bytes.extend(ip);
        bytes.extend(header);
        bytes.extend((0..payload).map(|n| n as u8));
        bytes
    }

    #[test]
    fn plain_packet_is_one_segment() {
        let packet = Packet::parse(tcp(1000, 0)).unwrap();
        assert_eq!(packet.burst, Burst::packet(1052));
        assert_eq!(packet.flow.destination, Ipv4Addr::new(10, 77, 0, 2));
        assert_eq!((packet.flow.source_port, packet.flow.destination_port), (40_000, 5201));
        let cut = packet.extract(0, 1, false);
        assert_eq!((cut.header().len(), cut.payload()), (0, &packet.bytes[..]));
    }

    #[test]
    fn super_packet_segments_include_headers() {
        let packet = Packet::parse(tcp(3500, 1448)).unwrap();
        let burst = Burst { segments: 3, segment_bytes: 1500, last_bytes: 52 + 3500 - 2896 };
        assert_eq!(packet.burst, burst);
        assert_eq!(packet.wire_bytes(0, 3), 3500 + 3 * 52);
    }

    #[test]
    fn extracted_segments_are_complete_packets() {
        let mut bytes = tcp(3500, 1448);
        bytes[1] |= GSO_ECN;
        let packet = Packet::parse(bytes).unwrap();
        let cases = [(0, 1, 0..1448), (0, 2, 0..2896), (1, 1, 1448..2896), (2, 1, 2896..3500)];
        for (first, count, range) in cases {
            let cut = packet.extract(first, count, false);
            let whole = [cut.header(), cut.payload()].concat();
            assert_eq!(cut.payload(), &packet.bytes[OFFLOAD_HEADER_BYTES + 52..][range.clone()]);
            let (offload, ip) = whole.split_at(OFFLOAD_HEADER_BYTES);
            assert_eq!(offload[1] != 0, count > 1, "a single segment is not a super-packet");
            assert_eq!(be16(ip, 2), Some((52 + range.len()) as u16));
            assert_eq!(ones_sum(&ip[..20], 0), 0xffff, "the IP checksum is right");
            let tcp = &ip[20..];
            let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
            assert_eq!(sequence, u32::MAX.wrapping_add(range.start as u32));
            let flags = (tcp[13] & (TCP_FIN | TCP_PSH) != 0, tcp[13] & TCP_CWR != 0);
            assert_eq!(flags, (first + count == 3, first == 0));
            let pseudo = ones_sum(&ip[12..20], 6 + 32 + range.len() as u32);
            assert_eq!(be16(tcp, 16), Some(pseudo));
            let again = Packet::parse(whole).unwrap();
            assert_eq!(again.burst.segments, count);
        }
    }

    #[test]
    fn counter_of_accurate_ecn_is_in_all_segments() {
        let packet = Packet::parse(tcp(3500, 1448)).unwrap();
        for first in 0..3 {
            let cut = packet.extract(first, 1, false);
            assert_eq!(cut.header()[OFFLOAD_HEADER_BYTES + 20 + 13] & TCP_CWR, TCP_CWR);
        }
    }

    /// Super-packet of UDP datagrams of `segment` bytes; the last may be shorter.
    fn udp(payload: usize, segment: u16) -> Vec<u8> {
        let mut bytes = tcp(payload - 24, segment);
        bytes[1] = GSO_UDP_L4;
        bytes[OFFLOAD_HEADER_BYTES + 9] = PROTOCOL_UDP;
        bytes
    }

    #[test]
    fn extracted_datagrams_have_own_lengths() {
        let packet = Packet::parse(udp(3500, 1472)).unwrap();
        let burst = Burst { segments: 3, segment_bytes: 1500, last_bytes: 28 + 3500 - 2944 };
        assert_eq!(packet.burst, burst);
        for (first, count, range) in [(0, 2, 0..2944), (1, 1, 1472..2944), (2, 1, 2944..3500)] {
            let cut = packet.extract(first, count, false);
            let whole = [cut.header(), cut.payload()].concat();
            assert_eq!(cut.payload(), &packet.bytes[OFFLOAD_HEADER_BYTES + 28..][range.clone()]);
            let (offload, ip) = whole.split_at(OFFLOAD_HEADER_BYTES);
            assert_eq!(offload[1] != 0, count > 1, "a single datagram is not a super-packet");
            assert_eq!(be16(ip, 2), Some((28 + range.len()) as u16));
            assert_eq!(ones_sum(&ip[..20], 0), 0xffff, "the IP checksum is right");
            assert_eq!(be16(&ip[20..], 4), Some((8 + range.len()) as u16));
            let pseudo = ones_sum(&ip[12..20], 17 + 8 + range.len() as u32);
            assert_eq!(be16(&ip[20..], 6), Some(pseudo));
            assert_eq!(Packet::parse(whole).unwrap().burst.segments, count);
        }
    }

    #[test]
    fn mark_of_congestion_is_set_on_capable_packets() {
        for (payload, segment, first, count) in
            [(1000, 0, 0, 1), (3500, 1448, 0, 3), (3500, 1448, 1, 2)]
        {
            for (codepoint, before, after) in [
                (0, Ecn::NotCapable, 0),
                (1, Ecn::Capable, 3),
                (2, Ecn::Capable, 3),
                (3, Ecn::Marked, 3),
            ] {
                let mut bytes = tcp(payload, segment);
                bytes[OFFLOAD_HEADER_BYTES + 1] = 0x28 | codepoint;
                update_checksum(&mut bytes[OFFLOAD_HEADER_BYTES..][..20]);
                let packet = Packet::parse(bytes).unwrap();
                assert_eq!(packet.ecn(), before);
                let cut = packet.extract(first, count, true);
                let whole = [cut.header(), cut.payload()].concat();
                let ip = &whole[OFFLOAD_HEADER_BYTES..];
                assert_eq!(ip[1], 0x28 | after);
                assert_eq!(ones_sum(&ip[..20], 0), 0xffff, "the IP checksum is right");
                assert_eq!(Packet::parse(whole).unwrap().burst.segments, count);
            }
        }
    }

    #[test]
    fn too_long_packet_is_answered_with_the_mtu() {
        let with = |flags: u8| {
            let mut bytes = tcp(3500, 1448);
            bytes[OFFLOAD_HEADER_BYTES + 6] = flags;
            Packet::parse(bytes).unwrap()
        };
        assert!(with(0x40).too_long_for(1500).is_none(), "it fits");
        assert!(with(0).too_long_for(1400).is_none(), "routers may fragment it");
        let answer = with(0x40).too_long_for(1400).unwrap();
        assert_eq!(answer.flow.destination, with(0x40).flow.source);
        let ip = &answer.bytes[OFFLOAD_HEADER_BYTES..];
        assert_eq!((ip.len(), be16(ip, 2), ip[9]), (56, Some(56), 1));
        assert_eq!((ones_sum(&ip[..20], 0), ones_sum(&ip[20..], 0)), (0xffff, 0xffff));
        assert_eq!((&ip[20..22], be16(&ip[20..], 6)), (&[3, 4][..], Some(1400)));
        assert_eq!(ip[28..], with(0x40).bytes[OFFLOAD_HEADER_BYTES..][..28], "it names the flow");
    }

    #[test]
    fn only_plain_acknowledgements_are_pure() {
        let ack = |flags: u8, options: [u8; 12], payload: usize| {
            let mut bytes = tcp(payload, 0);
            let header = &mut bytes[OFFLOAD_HEADER_BYTES + 20..];
            header[13] = flags;
            header[20..32].copy_from_slice(&options);
            Packet::parse(bytes).unwrap().is_pure_ack()
        };
        let timestamps = [1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
        let sack = [1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(ack(TCP_ACK, timestamps, 0));
        assert!(!ack(TCP_ACK, sack, 0), "it names what is missing");
        assert!(!ack(TCP_ACK, timestamps, 1), "data");
        assert!(!ack(TCP_ACK | TCP_FIN, timestamps, 0));
        assert!(!ack(TCP_ACK | 0x40, timestamps, 0), "it echoes congestion");
        assert!(ack(TCP_ACK, [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0), "a broken option ends");
    }

    #[test]
    fn truncated_or_foreign_packet_is_refused() {
        let good = tcp(3500, 1448);
        for whole in [&good, &udp(3500, 1472)] {
            for len in 0..whole.len() {
                assert!(Packet::parse(whole[..len].to_vec()).is_none(), "{len}");
            }
        }
        let mut six = good;
        six[OFFLOAD_HEADER_BYTES] = 0x60;
        assert!(Packet::parse(six).is_none());
    }
}
