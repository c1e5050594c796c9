//! Images and parity between agents: complete and checked before they count as replicated, fenced, bounded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Job, SMALL, id, job};
use rankguard_checkpoint::format::{ChunkOrigin, Digest, Manifest, ManifestShard, ShardIndex};
use rankguard_checkpoint::source::ChunkSource;
use rankguard_checkpoint::verify::verify;
use rankguard_checkpoint::{Checkpoint, ImageSource, Store};
use rankguard_checkpoint_tiers::bulk::{
    BulkError, BulkPeer, BulkServer, BulkSource, CallerAuthorization, ClientLimits, ReceiverStores, ReplicaKind,
    ReplicaMemory, ReplicaName, ReplicaStorage, ServerLimits, TransferRefusal, parity_index,
};
use rankguard_checkpoint_tiers::cap::BandwidthCap;
use rankguard_checkpoint_tiers::parity::{OriginalFile, encode};
use rankguard_identity::{CertificateAuthority, ExpectedPeer, IssueRequest, PeerRole, PeerTransport, TlsIdentity};
use rankguard_model::{Generation, JobId, NodeId, Rank};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Images of 6 MiB and a little, so that they travel in several pieces.
const LARGE: Job = Job {
    world: 2,
    rows: 64,
    columns: 200_001,
    chunk_bytes: 64 << 10,
};

struct Memory(Vec<u8>);

impl ImageSource for Memory {
    fn read_at(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.as_slice().read_at(at, out)
    }
}

fn image(bytes: Vec<u8>) -> Arc<dyn ImageSource + Send + Sync> {
    Arc::new(Memory(bytes))
}

async fn server(shelf: &Arc<ReplicaMemory>, store: Option<Store>) -> BulkServer {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let holdings = ReceiverStores {
        store,
        ..ReceiverStores::new(shelf.clone())
    };
    BulkServer::bind(any, &PeerTransport::loopback(), holdings, ServerLimits::default())
        .await
        .unwrap()
}

fn peer(address: SocketAddr) -> Arc<BulkPeer> {
    Arc::new(reach(address, ClientLimits::default()).unwrap())
}

fn reach(address: SocketAddr, limits: ClientLimits) -> Result<BulkPeer, BulkError> {
    let whoever = ExpectedPeer::Agent(NodeId::from("n1"));
    let network = PeerTransport::loopback();
    BulkPeer::new(address, whoever, &network, limits, Arc::new(BandwidthCap::none()))
}

/// The checkpoint that a controller would have committed from these shards.
fn checkpoint(indexes: Vec<ShardIndex>) -> Checkpoint {
    let manifest = Manifest {
        job: job(),
        step: indexes[0].step,
        generation: indexes[0].generation,
        run: None,
        world_size: indexes[0].world_size,
        parent: None,
        ledger: None,
        shards: indexes
            .iter()
            .map(|index| ManifestShard {
                rank: index.rank,
                index: index.digest(),
                bytes: index.image_bytes,
                schema: String::new(),
            })
            .collect(),
    };
    Checkpoint { manifest, indexes }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_that_were_pushed_are_restored_from_the_peer() {
    let shelf = Arc::new(ReplicaMemory::new(64 << 20));
    let server = server(&shelf, None).await;
    let peer = peer(server.address());
    let mut indexes = Vec::new();
    for rank in 0..2 {
        let (index, bytes) = LARGE.sealed(id(10, 1), rank);
        let replicated = peer
            .push(ReplicaKind::Image, &index, image(bytes), ReplicaStorage::Memory)
            .await
            .unwrap();
        assert_eq!(
            (replicated.root, &replicated.name),
            (index.root, &ReplicaName::image(&index))
        );
        let chunks: u64 = index.chunking().ranges().map(|range| range.end - range.start).sum();
        assert_eq!(replicated.sent_bytes, chunks);
        indexes.push(index);
    }
    assert_eq!(shelf.names(&job()).len(), 2);
    // Again: everything is there.
    let again = peer
        .push(
            ReplicaKind::Image,
            &indexes[0],
            image(Vec::new()),
            ReplicaStorage::Memory,
        )
        .await
        .unwrap();
    assert_eq!(again.sent_bytes, 0);

    let runtime = tokio::runtime::Handle::current();
    let whole = checkpoint(indexes);
    let (bytes, report) = tokio::task::spawn_blocking(move || {
        let source = BulkSource::new(peer, "n1", Generation(2), runtime);
        LARGE.load(&whole, &[&source as &dyn ChunkSource]).unwrap()
    })
    .await
    .unwrap();
    assert!(bytes == LARGE.expected(10));
    assert_eq!(report.bytes.peer, bytes.len() as u64);

    let before = shelf.bytes();
    shelf.release(&job(), |checkpoint| checkpoint <= id(10, 1));
    assert!(before > 12 << 20 && shelf.bytes() == 0 && shelf.names(&job()).is_empty());
}

#[tokio::test]
async fn an_image_for_disk_is_a_shard_of_the_receivers_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let shelf = Arc::new(ReplicaMemory::new(64 << 20));
    let server = server(&shelf, Some(store.clone())).await;
    let peer = peer(server.address());
    let mut indexes = Vec::new();
    for rank in 0..2 {
        let (index, bytes) = LARGE.sealed(id(10, 1), rank);
        peer.push(ReplicaKind::Image, &index, image(bytes), ReplicaStorage::Disk)
            .await
            .unwrap();
        indexes.push(index);
    }
    assert_eq!(shelf.bytes(), 0, "memory is free again");
    store.commit(&checkpoint(indexes).manifest).unwrap();
    assert!(verify(&store, &job(), None).unwrap().is_intact());
}

#[tokio::test]
async fn rg_3_a_stale_generation_neither_pushes_nor_fetches() {
    let shelf = Arc::new(ReplicaMemory::new(1 << 20));
    let server = server(&shelf, None).await;
    let peer = peer(server.address());
    let (index, bytes) = SMALL.sealed(id(10, 1), 0);
    peer.push(ReplicaKind::Image, &index, image(bytes.clone()), ReplicaStorage::Memory)
        .await
        .unwrap();
    shelf.raise_fence(&job(), Generation(2));
    shelf.raise_fence(&job(), Generation(1));
    let stale = |error: BulkError| {
        matches!(
            error,
            BulkError::Refused {
                refusal: TransferRefusal::Stale { asked: 1, fence: 2 },
                ..
            }
        )
    };
    let (later, _) = SMALL.sealed(id(20, 1), 0);
    assert!(stale(
        peer.push(ReplicaKind::Image, &later, image(bytes), ReplicaStorage::Memory)
            .await
            .unwrap_err()
    ));
    let name = ReplicaName::image(&index);
    assert!(stale(peer.fetch(&name, Generation(1), vec![(0, 1)]).await.unwrap_err()));
    let newer = peer.fetch(&name, Generation(2), vec![(0, 1)]).await.unwrap();
    assert_eq!(newer.unwrap().len(), 64, "the image itself is still a restore point");
}

#[tokio::test]
async fn rg_2_an_image_that_is_not_what_its_index_says_is_never_replicated() {
    let (index, bytes) = LARGE.sealed(id(10, 1), 0);
    for at in [0, 5 << 20, bytes.len() - 1] {
        let shelf = Arc::new(ReplicaMemory::new(64 << 20));
        let server = server(&shelf, None).await;
        let peer = peer(server.address());
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let error = peer
            .push(ReplicaKind::Image, &index, image(damaged), ReplicaStorage::Memory)
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                BulkError::Refused {
                    refusal: TransferRefusal::Damaged { .. },
                    ..
                }
            ),
            "{error}"
        );
        assert!(shelf.names(&job()).is_empty(), "not called whole");
        // Once more, undamaged: pieces that arrived intact before are retained.
        let replicated = peer
            .push(ReplicaKind::Image, &index, image(bytes.clone()), ReplicaStorage::Memory)
            .await
            .unwrap();
        assert!(replicated.sent_bytes <= index.image_bytes, "{replicated:?}");
        let mut out = vec![0; bytes.len()];
        shelf
            .sealed_replica(&ReplicaName::image(&index))
            .unwrap()
            .read_at(0, &mut out)
            .unwrap();
        assert!(out == bytes);
    }
}

#[tokio::test]
async fn a_full_shelf_and_another_image_of_that_name_are_refused_with_numbers() {
    let (index, bytes) = SMALL.sealed(id(10, 1), 0);
    let shelf = Arc::new(ReplicaMemory::new(index.image_bytes + 10));
    let server = server(&shelf, None).await;
    let peer = peer(server.address());
    peer.push(ReplicaKind::Image, &index, image(bytes.clone()), ReplicaStorage::Memory)
        .await
        .unwrap();
    let mut other = index.clone();
    other.state = serde_json::json!("other");
    let error = peer
        .push(ReplicaKind::Image, &other, image(bytes.clone()), ReplicaStorage::Memory)
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            BulkError::Refused {
                refusal: TransferRefusal::Conflict,
                ..
            }
        ),
        "{error}"
    );
    let (more, bytes) = SMALL.sealed(id(10, 1), 1);
    let error = peer
        .push(ReplicaKind::Image, &more, image(bytes), ReplicaStorage::Memory)
        .await
        .unwrap_err();
    let wanted = more.image_bytes;
    assert!(
        matches!(error, BulkError::Refused { refusal: TransferRefusal::Full { wanted: told, room: 10 }, .. } if told == wanted),
        "{error}"
    );
    let error = peer
        .push(ReplicaKind::Image, &index, image(Vec::new()), ReplicaStorage::Disk)
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            BulkError::Refused {
                refusal: TransferRefusal::NoDisk,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn parity_travels_as_images_do_and_brings_its_descriptor() {
    let shelf = Arc::new(ReplicaMemory::new(1 << 20));
    let server = server(&shelf, None).await;
    let peer = peer(server.address());
    let images: Vec<Vec<u8>> = (0..2).map(|rank| SMALL.sealed(id(10, 1), rank).1).collect();
    let views: Vec<&[u8]> = images.iter().map(Vec::as_slice).collect();
    let originals: Vec<OriginalFile<'_>> = (0u32..)
        .zip(&views)
        .map(|(rank, view)| OriginalFile {
            file: ChunkOrigin::new(id(10, 1), Rank(rank)),
            bytes: view.len() as u64,
            index: Digest::of(b"index"),
            content: view,
        })
        .collect();
    let mut parity = Vec::new();
    let descriptor = encode(&job(), &originals, 1, 64, |_, bytes| {
        parity.extend_from_slice(bytes);
        Ok(())
    })
    .unwrap();
    let index = parity_index(&descriptor, id(10, 1), 3, &parity);
    peer.push(
        ReplicaKind::Parity(0),
        &index,
        image(parity.clone()),
        ReplicaStorage::Memory,
    )
    .await
    .unwrap();
    let name = ReplicaName {
        what: ReplicaKind::Parity(0),
        ..ReplicaName::image(&index)
    };
    let held = shelf.sealed_replica(&name).unwrap();
    let mut out = vec![0; parity.len()];
    held.read_at(0, &mut out).unwrap();
    assert_eq!(out, parity);
    let text = held.index().state["descriptor"].as_str().unwrap();
    let read = rankguard_checkpoint_tiers::parity::GroupDescriptor::from_bytes(text.as_bytes());
    assert_eq!(read, Ok(descriptor));
}

#[tokio::test]
async fn rg_9_a_peer_that_is_silent_gone_or_foreign_costs_a_deadline_at_most() {
    let limits = ClientLimits {
        deadline: Duration::from_millis(200),
        connections: 1,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (index, bytes) = SMALL.sealed(id(10, 1), 0);
    let silent = Arc::new(reach(address, limits).unwrap());
    let error = silent
        .push(ReplicaKind::Image, &index, image(bytes.clone()), ReplicaStorage::Memory)
        .await
        .unwrap_err();
    assert!(
        matches!(error, BulkError::Deadline { .. }) && error.is_retryable(),
        "{error}"
    );
    let chatter = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    // The first connection of the silent peer may still wait to be accepted.
    let error = silent
        .push(ReplicaKind::Image, &index, image(bytes.clone()), ReplicaStorage::Memory)
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            BulkError::Protocol { .. } | BulkError::Deadline { .. } | BulkError::Io { .. }
        ),
        "{error}"
    );
    chatter.abort();
    let _ = chatter.await;
    let error = silent
        .push(ReplicaKind::Image, &index, image(bytes), ReplicaStorage::Memory)
        .await
        .unwrap_err();
    assert!(matches!(error, BulkError::Dial { .. }), "{error}");
}

#[tokio::test]
async fn rg_11_foreign_bytes_end_a_connection_and_nothing_else() {
    let shelf = Arc::new(ReplicaMemory::new(1 << 20));
    let server = server(&shelf, None).await;
    for text in [
        &b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..],
        b"RGB1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"RGB1\x02\0\0\0\0\0\0\0\0\0\0\0{}",
    ] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(text).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // Closed without a reply, or reset because there was more to read.
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(answer, b"");
    }
    let (index, bytes) = SMALL.sealed(id(10, 1), 0);
    peer(server.address())
        .push(ReplicaKind::Image, &index, image(bytes), ReplicaStorage::Memory)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_server_that_came_back_is_reached_again() {
    let shelf = Arc::new(ReplicaMemory::new(1 << 20));
    let first = server(&shelf, None).await;
    let address = first.address();
    let peer = peer(address);
    let (index, bytes) = SMALL.sealed(id(10, 1), 0);
    peer.push(ReplicaKind::Image, &index, image(bytes), ReplicaStorage::Memory)
        .await
        .unwrap();
    drop(first);
    let second = loop {
        // The listener of the first is closed when its task has ended.
        let bound = BulkServer::bind(
            address,
            &PeerTransport::loopback(),
            ReceiverStores::new(shelf.clone()),
            ServerLimits::default(),
        )
        .await;
        match bound {
            Ok(server) => break server,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let found = peer
        .fetch(&ReplicaName::image(&index), Generation(1), vec![(0, 2)])
        .await
        .unwrap();
    assert_eq!(found.map(|bytes| bytes.len()), Some(128));
    drop(second);
}

#[tokio::test]
async fn nothing_but_loopback_is_spoken_to() {
    let far = SocketAddr::from(([192, 0, 2, 1], 9));
    let refused = reach(far, ClientLimits::default());
    assert!(matches!(refused, Err(BulkError::Exposed(_))));
    let shelf = Arc::new(ReplicaMemory::new(1));
    let all = SocketAddr::from(([0, 0, 0, 0], 0));
    let network = PeerTransport::loopback();
    let holdings = ReceiverStores::new(shelf);
    let refused = BulkServer::bind(all, &network, holdings, ServerLimits::default()).await;
    assert!(matches!(refused, Err(BulkError::Exposed(_))));
}

/// Accepts only n1 in generation 7.
#[derive(Debug)]
struct OnlyN1;

impl CallerAuthorization for OnlyN1 {
    fn is_authorized(&self, node: &NodeId, _: &JobId, generation: Generation) -> bool {
        generation == Generation(7) && *node == NodeId::from("n1")
    }
}

#[tokio::test]
async fn over_tls_images_pass_between_agents_that_have_a_part_in_the_generation() {
    let dir = tempfile::tempdir().unwrap();
    CertificateAuthority::create(&dir.path().join("ca"), "c", 9).unwrap();
    let authority = CertificateAuthority::open(&dir.path().join("ca")).unwrap();
    let network = |role: PeerRole, name: &str| {
        let wanted = IssueRequest {
            role,
            name: name.to_owned(),
            hosts: Vec::new(),
            days: 5,
        };
        PeerTransport::with(TlsIdentity::new(
            authority.issue(&wanted, &dir.path().join(name)).unwrap().1,
        ))
    };
    let n1 = network(PeerRole::Agent, "n1");
    let n2 = network(PeerRole::Agent, "n2");
    let n3 = network(PeerRole::Agent, "n3");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let holdings = ReceiverStores {
        callers: Some(Arc::new(OnlyN1)),
        ..ReceiverStores::new(Arc::new(ReplicaMemory::new(64 << 20)))
    };
    let server = BulkServer::bind(any, &n3, holdings, ServerLimits::default());
    let server = server.await.unwrap();
    let reach = |network: &PeerTransport, node: &str| {
        let expected = ExpectedPeer::Agent(NodeId::from(node));
        let limits = ClientLimits::default();
        Arc::new(
            BulkPeer::new(
                server.address(),
                expected,
                network,
                limits,
                Arc::new(BandwidthCap::none()),
            )
            .unwrap(),
        )
    };
    let (index, bytes) = LARGE.sealed(id(10, 7), 0);
    let push = async |peer: Arc<BulkPeer>| {
        peer.push(ReplicaKind::Image, &index, image(bytes.clone()), ReplicaStorage::Memory)
            .await
    };
    push(reach(&n1, "n3")).await.unwrap();
    let fetch = async |peer: Arc<BulkPeer>, generation| {
        let name = ReplicaName::image(&index);
        peer.fetch(&name, Generation(generation), vec![(0, 1)]).await.unwrap()
    };
    assert_eq!(
        fetch(reach(&n1, "n3"), 7).await.map(|bytes| bytes.len()),
        Some(64 << 10)
    );

    let stranger = push(reach(&n2, "n3")).await.unwrap_err();
    assert!(
        stranger.to_string().contains("n2 has no part in generation 7"),
        "{stranger}"
    );
    for generation in [7, 8, u64::MAX] {
        let name = ReplicaName::image(&index);
        let fetched = reach(&n2, "n3")
            .fetch(&name, Generation(generation), vec![(0, 1)])
            .await;
        let told = fetched.unwrap_err().to_string();
        assert!(
            told.contains(&format!("n2 has no part in generation {generation}")),
            "{told}"
        );
    }

    let error = push(reach(&n1, "n4")).await.unwrap_err();
    assert!(
        matches!(error, BulkError::Dial { .. }) && !error.is_retryable(),
        "{error}"
    );
    // Not an agent: its connection is closed at the first request.
    let operator = network(PeerRole::Operator, "ada");
    let error = push(reach(&operator, "n3")).await.unwrap_err();
    assert!(matches!(error, BulkError::Io { .. }), "{error}");
    // Without TLS: the refusal comes in the plain protocol.
    let plain = push(reach(&PeerTransport::loopback(), "n3")).await.unwrap_err();
    assert!(
        matches!(&plain, BulkError::Refused { .. }) && plain.to_string().contains("requires TLS"),
        "{plain}"
    );
}
