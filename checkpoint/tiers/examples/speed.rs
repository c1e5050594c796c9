//! Speed of the tiers, beside that of the machine: interleaved rounds, the first discarded, medians.
//!
//! `cargo run --release -p rankguard-checkpoint-tiers --example speed -- [MiB] [rounds]`

#![allow(clippy::print_stdout, reason = "a program that reports figures")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rankguard_checkpoint::ImageSource;
use rankguard_checkpoint::format::{CheckpointId, ChunkOrigin, Digest, Dtype, ShardIndex, TensorBox};
use rankguard_checkpoint_tiers::bulk::{
    BulkPeer, BulkServer, ClientLimits, ParityMemory, RankLane, ReceiverStores, ReplicaKind, ReplicaMemory,
    ReplicaName, ReplicaStorage, ServerLimits,
};
use rankguard_checkpoint_tiers::cap::BandwidthCap;
use rankguard_checkpoint_tiers::parity::{OriginalFile, STRIPE_BYTES, encode};
use rankguard_identity::{CertificateAuthority, ExpectedPeer, IssueRequest, PeerRole, PeerTransport, TlsIdentity};
use rankguard_model::{Generation, JobId, NodeId, Rank, Step};

/// Number of connections of a push, and of the raw loop it is compared with.
const CONNECTIONS: usize = 2;

/// Bytes of one `write` of the raw loop.
const BLOCK: usize = 4 << 20;

struct Memory(Vec<u8>);

impl ImageSource for Memory {
    fn read_at(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.as_slice().read_at(at, out)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mib: usize = args.next().map_or(Ok(256), |text| text.parse())?;
    let rounds: usize = args.next().map_or(Ok(5), |text| text.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let image: Vec<u8> = (0..mib << 20).map(|at| (at ^ at >> 9) as u8).collect();
    let mut copy = vec![1u8; image.len()];
    let mut warm = vec![1u8; image.len()];
    let id = |step| CheckpointId {
        step: Step(step),
        generation: Generation(1),
    };
    let job = JobId::from("speed");
    let mut index = ShardIndex::new(&job, id(0));
    let (tensors, bytes) = ShardIndex::lay_out([TensorBox::whole("w", Dtype::U8, vec![image.len() as u64])]);
    (index.tensors, index.image_bytes) = (tensors, bytes.unwrap_or(0));
    index.digest_image(&image);
    let source: Arc<dyn ImageSource + Send + Sync> = Arc::new(Memory(image.clone()));

    let shelf = Arc::new(ReplicaMemory::new((image.len() as u64) * 2));
    let sums = Arc::new(ParityMemory::new(shelf.clone()));
    let (_plain, peer) = pair(&runtime, (&shelf, &sums), &PeerTransport::loopback())?;
    let folder = tempfile::tempdir()?;
    let (_secure, secure_peer) = pair(&runtime, (&shelf, &sums), &secured(folder.path())?)?;

    let members: Vec<&[u8]> = image.chunks(image.len() / 8).take(8).collect();
    let originals: Vec<OriginalFile<'_>> = (0u32..)
        .zip(&members)
        .map(|(rank, member)| OriginalFile {
            file: ChunkOrigin::new(id(0), Rank(rank)),
            bytes: member.len() as u64,
            index: Digest::of(b"speed"),
            content: member,
        })
        .collect();

    let mut times: [Vec<f64>; 10] = Default::default();
    let mut sent = 0;
    for round in 0..=rounds {
        let mut took = [0.0; 10];
        took[0] = timed(|| {
            copy.copy_from_slice(&image);
            Ok(())
        })?;
        took[1] = timed(|| raw(&image, &mut warm))?;
        (index.step, index.generation) = (Step(round as u64), Generation(1));
        for (place, peer) in [(2, &peer), (6, &secure_peer)] {
            took[place] = timed(|| {
                runtime.block_on(peer.push(ReplicaKind::Image, &index, source.clone(), ReplicaStorage::Memory))?;
                Ok(())
            })?;
            let name = ReplicaName::image(&index);
            took[place + 1] = timed(|| {
                let chunks = index.chunks.len() as u32;
                for first in (0..chunks).step_by(64) {
                    let run = (first, 64.min(chunks - first));
                    runtime
                        .block_on(peer.fetch(&name, Generation(1), vec![run]))?
                        .ok_or("the image is gone")?;
                }
                Ok(())
            })?;
            shelf.release(&job, |_| true);
        }
        for (place, parities) in [(8, 1), (9, 2)] {
            let lane = RankLane {
                ranks: [index.rank, Rank(index.rank.0 + 1)].to_vec(),
                parities,
            };
            took[place] = timed(|| {
                let keep = ReplicaStorage::Sum(lane.clone());
                let pushed =
                    runtime.block_on(peer.push(ReplicaKind::Share(parities - 1), &index, source.clone(), keep))?;
                sent = pushed.sent_bytes;
                Ok(())
            })?;
            sums.release(&job, |_| true);
        }
        for (place, parity) in [(4, 1), (5, 2)] {
            took[place] = timed(|| {
                encode(&job, &originals, parity, STRIPE_BYTES, |_, _| Ok(()))?;
                Ok(())
            })?;
        }
        if round > 0 {
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
        }
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let [memcpy, tcp, push, fetch, xor, rs, tls_push, tls_fetch, share, rs_share] = times.each_mut().map(median);
    let rate = |seconds: f64| image.len() as f64 / seconds / 1e9;
    println!("{mib} MiB, medians of {rounds}, GB/s, and time over the reference's");
    println!("memcpy, one thread            {:6.2}", rate(memcpy));
    println!("raw TCP, {CONNECTIONS} connections      {:6.2}", rate(tcp));
    println!(
        "push to a peer's memory       {:6.2}  {:.2}x raw TCP",
        rate(push),
        push / tcp
    );
    println!(
        "fetch, one after the other    {:6.2}  {:.2}x raw TCP",
        rate(fetch),
        fetch / tcp
    );
    println!(
        "push over TLS                 {:6.2}  {:.2}x the plain push",
        rate(tls_push),
        tls_push / push
    );
    println!(
        "fetch over TLS                {:6.2}  {:.2}x the plain fetch",
        rate(tls_fetch),
        tls_fetch / fetch
    );
    println!(
        "XOR parity, 8 members         {:6.2}  {:.2}x memcpy",
        rate(xor),
        xor / memcpy
    );
    println!(
        "Reed-Solomon, 8 + 2           {:6.2}  {:.2}x memcpy",
        rate(rs),
        rs / memcpy
    );
    for (code, seconds) in [("XOR", share), ("RS", rs_share)] {
        println!(
            "push into a {code:>3} sum elsewhere {:6.2}  {:.2}x memcpy, {:.2}x the plain push, {:.2} bytes sent a byte of image",
            rate(seconds),
            seconds / memcpy,
            seconds / push,
            sent as f64 / image.len() as f64
        );
    }
    Ok(())
}

/// Creates a receiver and a client that pushes to it.
fn pair(
    runtime: &tokio::runtime::Runtime,
    (shelf, sums): (&Arc<ReplicaMemory>, &Arc<ParityMemory>),
    network: &PeerTransport,
) -> Result<(BulkServer, Arc<BulkPeer>), Box<dyn Error>> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let none = || Arc::new(BandwidthCap::none());
    let holdings = ReceiverStores {
        sums: Some(sums.clone()),
        ..ReceiverStores::new(shelf.clone())
    };
    let server = BulkServer::bind(any, network, holdings, ServerLimits::default());
    let server = runtime.block_on(server)?;
    let limits = ClientLimits {
        connections: CONNECTIONS,
        ..ClientLimits::default()
    };
    let expected = ExpectedPeer::Agent(NodeId::from("n1"));
    let peer = BulkPeer::new(server.address(), expected, network, limits, none())?;
    Ok((server, Arc::new(peer)))
}

/// An identity made for this run.
fn secured(folder: &Path) -> Result<PeerTransport, Box<dyn Error>> {
    let ca = folder.join("ca");
    CertificateAuthority::create(&ca, "speed", 2)?;
    let wanted = IssueRequest {
        role: PeerRole::Agent,
        name: "n1".to_owned(),
        hosts: Vec::new(),
        days: 1,
    };
    let (_, files) = CertificateAuthority::open(&ca)?.issue(&wanted, &folder.join("n1"))?;
    Ok(PeerTransport::with(TlsIdentity::new(files)))
}

fn timed(work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_secs_f64())
}

/// Sends the same bytes over plain sockets into warm memory, without any check.
fn raw(image: &[u8], warm: &mut [u8]) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let part = image.len().div_ceil(CONNECTIONS);
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let mut threads = Vec::new();
        for (from, to) in image.chunks(part).zip(warm.chunks_mut(part)) {
            threads.push(scope.spawn(move || -> std::io::Result<()> {
                let mut stream = TcpStream::connect(address)?;
                from.chunks(BLOCK).try_for_each(|block| stream.write_all(block))
            }));
            let (mut stream, _) = listener.accept()?;
            threads.push(scope.spawn(move || stream.read_exact(to)));
        }
        for thread in threads {
            thread.join().map_err(|_| "a thread has died")??;
        }
        Ok(())
    })
}
