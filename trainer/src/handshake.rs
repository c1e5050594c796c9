//! Handshake between two ranks: the caller sends a greeting of 48 bytes, and the listener an answer of 16 bytes with its
//! verdict. Unknown callers and ranks of another generation are refused before any gradient is used (RG-3).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rankguard_rank::RankEnv;

/// Bytes of a greeting.
pub(crate) const HELLO_BYTES: usize = 48;
/// Bytes of an answer.
pub(crate) const ANSWER_BYTES: usize = 16;
/// Bytes of an entry of the address list.
pub(crate) const ADDRESS_BYTES: usize = 18;

const MAGIC: [u8; 8] = *b"RGRANKS1";

/// Greeting with which a rank identifies itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerHello {
    /// First 8 bytes of the BLAKE3 digest of the job's name.
    pub(crate) job: u64,
    /// Hash of the settings that determine the trained bits.
    pub(crate) settings: u64,
    pub(crate) generation: u64,
    pub(crate) rank: u32,
    /// Number of ranks.
    pub(crate) world_size: u32,
    /// Port on which higher ranks can connect to it.
    pub(crate) port: u16,
}

impl PeerHello {
    pub(crate) fn of(env: &RankEnv, settings: u64, port: u16) -> Self {
        let digest = blake3::hash(env.job.as_str().as_bytes());
        let cut = digest.as_bytes().first_chunk().expect("a digest has 32 bytes");
        Self {
            job: u64::from_le_bytes(*cut),
            settings,
            generation: env.generation.0,
            rank: env.rank.0,
            world_size: env.world_size,
            port,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.job.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.settings.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.generation.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.rank.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.world_size.to_le_bytes());
        bytes[40..42].copy_from_slice(&self.port.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        (bytes[..8] == MAGIC).then(|| Self {
            job: u64_at(bytes, 8),
            settings: u64_at(bytes, 16),
            generation: u64_at(bytes, 24),
            rank: u64_at(bytes, 32) as u32,
            world_size: (u64_at(bytes, 32) >> 32) as u32,
            port: u64_at(bytes, 40) as u16,
        })
    }

    /// Returns a listener's answer to a caller: welcome if the caller is one of the ranks in `expected` and has the
    /// same job, settings and generation.
    pub(crate) fn answer(&self, caller: Option<&Self>, expected: impl Fn(u32) -> bool) -> HelloReply {
        let verdict = match caller {
            None => HelloVerdict::Stranger,
            Some(c) if c.job != self.job => HelloVerdict::OtherJob,
            Some(c) if c.generation != self.generation => HelloVerdict::OtherGeneration,
            Some(c) if c.settings != self.settings => HelloVerdict::OtherSettings,
            Some(c) if c.world_size != self.world_size || !expected(c.rank) => HelloVerdict::OtherRank,
            Some(_) => HelloVerdict::Welcome,
        };
        HelloReply {
            verdict,
            generation: self.generation,
        }
    }
}

/// Answer of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HelloReply {
    pub(crate) verdict: HelloVerdict,
    /// Generation of the listener.
    pub(crate) generation: u64,
}

/// Verdict on a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelloVerdict {
    /// The caller is one of the expected ranks.
    Welcome,
    /// The caller does not use this protocol.
    Stranger,
    /// The caller belongs to another job.
    OtherJob,
    /// The caller belongs to another generation of the job.
    OtherGeneration,
    /// The caller's settings would train other bits.
    OtherSettings,
    /// The caller is not expected here, or is connected already.
    OtherRank,
}

const VERDICTS: [(HelloVerdict, &str); 6] = [
    (HelloVerdict::Welcome, "welcome"),
    (HelloVerdict::Stranger, "the caller does not speak this protocol"),
    (HelloVerdict::OtherJob, "the caller belongs to another job"),
    (
        HelloVerdict::OtherGeneration,
        "the caller belongs to another generation",
    ),
    (HelloVerdict::OtherSettings, "the caller has other settings"),
    (
        HelloVerdict::OtherRank,
        "the caller's rank is not expected or already there",
    ),
];

impl std::fmt::Display for HelloVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(VERDICTS[*self as usize].1)
    }
}

impl HelloReply {
    pub(crate) fn to_bytes(self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC[..4]);
        bytes[4] = self.verdict as u8;
        bytes[8..].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; ANSWER_BYTES]) -> Option<Self> {
        let (verdict, _) = VERDICTS.get(usize::from(bytes[4]))?;
        (bytes[..4] == MAGIC[..4]).then(|| Self {
            verdict: *verdict,
            generation: u64_at(bytes, 8),
        })
    }
}

/// Encodes an address as 16 bytes of IPv6 (IPv4 mapped) and 2 of port.
pub(crate) fn address_to_bytes(address: SocketAddr) -> [u8; ADDRESS_BYTES] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_le_bytes());
    bytes
}

pub(crate) fn address_from_bytes(bytes: &[u8; ADDRESS_BYTES]) -> SocketAddr {
    let mut ip = [0; 16];
    ip.copy_from_slice(&bytes[..16]);
    let port = u16::from_le_bytes([bytes[16], bytes[17]]);
    SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hello() -> PeerHello {
        PeerHello::of(&RankEnv::from_vars(&Default::default()).unwrap(), 7, 4711)
    }

    fn check(change: impl FnOnce(&mut PeerHello), expect: HelloVerdict) {
        let mut caller = hello();
        change(&mut caller);
        let caller = PeerHello::from_bytes(&caller.to_bytes()).unwrap();
        let answer = hello().answer(Some(&caller), |rank| rank == 0);
        assert_eq!(answer.verdict, expect);
        assert_eq!(HelloReply::from_bytes(&answer.to_bytes()), Some(answer));
    }

    #[test]
    fn rg3_only_the_expected_rank_of_the_same_generation_is_welcome() {
        check(|_| {}, HelloVerdict::Welcome);
        check(|c| c.generation = 2, HelloVerdict::OtherGeneration);
        check(|c| c.job = 0, HelloVerdict::OtherJob);
        check(|c| c.settings = 8, HelloVerdict::OtherSettings);
        check(|c| c.rank = 1, HelloVerdict::OtherRank);
        check(|c| c.world_size = 2, HelloVerdict::OtherRank);
    }

    #[test]
    fn foreign_bytes_are_no_greeting() {
        assert_eq!(PeerHello::from_bytes(&[0; HELLO_BYTES]), None);
        assert_eq!(HelloReply::from_bytes(&[9; ANSWER_BYTES]), None);
        assert_eq!(hello().answer(None, |_| true).verdict, HelloVerdict::Stranger);
    }

    #[test]
    fn addresses_survive_the_wire() {
        for text in ["127.0.0.1:29500", "[::1]:80"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(address_from_bytes(&address_to_bytes(address)), address);
        }
    }
}
