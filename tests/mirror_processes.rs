//! `rankguard checkpoint push|pull|gc` by several processes at once, in PID namespaces of their own, killed, and with endpoints
//! that do not answer.

#![allow(clippy::print_stdout, reason = "measured figures")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so loudly")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rankguard_checkpoint::Store;
use rankguard_checkpoint_format::{CheckpointId, Dtype, Manifest, ShardIndex, TensorBox};
use rankguard_model::{Generation, JobId, Rank, Step};

use crate::support::{Ran, command, finish, rankguard, until};

const LIMIT: Duration = Duration::from_secs(120);

/// Bytes of one shard: more than one part of an upload.
const SHARD: u64 = 40 << 20;

/// A store with one checkpoint of two ranks.
fn store(dir: &Path) -> Store {
    let store = Store::open(dir).expect("a store");
    let job = JobId::from("demo");
    let id = CheckpointId {
        step: Step(10),
        generation: Generation(1),
    };
    let seals: Vec<_> = (0..2)
        .map(|rank| {
            let weight = TensorBox::rows(
                "weight",
                Dtype::U8,
                vec![2, SHARD],
                u64::from(rank)..u64::from(rank) + 1,
            );
            let (tensors, end) = ShardIndex::lay_out([weight]);
            let mut index = ShardIndex {
                rank: Rank(rank),
                world_size: 2,
                image_bytes: end.expect("a small image"),
                tensors,
                ..ShardIndex::new(&job, id)
            };
            let image: Vec<u8> = (0..SHARD).map(|at| (at ^ at >> 9 ^ u64::from(rank)) as u8).collect();
            index.digest_image(&image);
            store.write_shard(&index, &image.as_slice()).expect("written").seal
        })
        .collect();
    let manifest = Manifest::from_seals(&job, id, None, &seals).expect("a manifest");
    store.commit(&manifest).expect("committed");
    store
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

fn url(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// Files below a folder whose name has `part` in it.
fn files_with(folder: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(files_with(&entry.path(), part));
        } else if entry.file_name().to_string_lossy().contains(part) {
            found.push(entry.path());
        }
    }
    found
}

/// A mirror of a store.
fn mirrored(dir: &Path) -> PathBuf {
    let from = dir.join("from");
    let mirror = dir.join("mirror");
    store(&from);
    rankguard(&["checkpoint", "push", "--dir", text(&from), "--to", &url(&mirror)]).expect(0);
    mirror
}

/// The program in a PID namespace of its own, where its number is 1 or 2; `None` where that is not allowed.
fn in_namespace(args: &[&str]) -> Option<Child> {
    let plain = command(args);
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--kill-child"])
        .arg(plain.get_program())
        .args(plain.get_args());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().ok()
}

fn may_unshare() -> bool {
    let tried = Command::new("unshare")
        .args(["--pid", "--fork", "true"])
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// Kills pulls in the middle, beside others that end well; what was killed leaves nothing that stays.
fn pulls_beside_killed_ones(start: impl Fn(&[&str]) -> Child) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mirror = url(&mirrored(dir.path()));
    let mut met = 0;
    for round in 0..3 {
        let to = dir.path().join(format!("to-{round}"));
        let words = ["checkpoint", "pull", "--from", &mirror, "--dir", text(&to)];
        let mut victim = start(&words);
        let others: Vec<Child> = (0..3).map(|_| start(&words)).collect();
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(20) {
            if !files_with(&to, ".tmp-rank").is_empty() {
                met += 1;
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = victim.kill();
        let _ = victim.wait();
        for other in others {
            finish(other, LIMIT).expect(0);
        }
        rankguard(&["checkpoint", "verify", "--dir", text(&to)]).expect(0);
        // A pull that was killed alone is found by the next.
        let alone = dir.path().join(format!("alone-{round}"));
        let words = ["checkpoint", "pull", "--from", &mirror, "--dir", text(&alone)];
        let mut victim = start(&words);
        until("a pull under way", LIMIT, || {
            let ended = victim.try_wait().expect("it can be waited for").is_some();
            (ended || !files_with(&alone, ".tmp-rank").is_empty()).then_some(())
        });
        let _ = victim.kill();
        let _ = victim.wait();
        finish(start(&words), LIMIT).expect(0);
        rankguard(&["checkpoint", "verify", "--dir", text(&alone)]).expect(0);
        for folder in [&to, &alone] {
            assert_eq!(files_with(folder, ".tmp-"), Vec::<PathBuf>::new(), "round {round}");
        }
    }
    println!("{met} of 3 pulls were met in the middle");
}

#[test]
fn rg_2_pulls_by_processes_survive_the_kill_of_one() {
    pulls_beside_killed_ones(|words| command(words).spawn().expect("it starts"));
}

#[test]
fn rg_2_pulls_in_pid_namespaces_survive_the_kill_of_one() {
    if !may_unshare() {
        eprintln!("SKIPPED: PID namespaces need root and `unshare`");
        return;
    }
    pulls_beside_killed_ones(|words| in_namespace(words).expect("it starts"));
}

/// `kill -9` in an upload leaves a staged file in a `file://` mirror: the next push removes it when it is old, and no sooner.
#[test]
fn what_a_killed_push_has_staged_is_removed_by_the_next() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let from = dir.path().join("from");
    let mirror = dir.path().join("mirror");
    store(&from);
    let to = url(&mirror);
    let words = ["checkpoint", "push", "--dir", text(&from), "--to", &to];
    let mut push = command(&[&words[..], &["--cap", "5"]].concat())
        .spawn()
        .expect("it starts");
    let staged = until("a file that is staged", LIMIT, || files_with(&mirror, ".shard#").pop());
    push.kill().expect("it runs");
    push.wait().expect("it ends");
    assert!(staged.exists());
    rankguard(&words).expect(0);
    assert!(staged.exists(), "another process may write it");
    let old = SystemTime::now() - Duration::from_secs(2 * 3600);
    fs::File::options()
        .write(true)
        .open(&staged)
        .and_then(|file| file.set_modified(old))
        .expect("it is there");
    // Of the checkpoint that is there already nothing is sent, so another one is pushed.
    fs::remove_file(files_with(&mirror, "MANIFEST").remove(0)).expect("it is there");
    rankguard(&words).expect(0);
    assert_eq!(files_with(&mirror, "#"), Vec::<PathBuf>::new());
    rankguard(&["checkpoint", "verify", "--dir", text(&mirror)]).expect(0);
}

fn s3(endpoint: &str, words: &[&str]) -> Ran {
    let mut command = command(words);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
        command.env_remove(name);
    }
    for (name, value) in [
        ("AWS_ENDPOINT", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "us-east-1"),
    ] {
        command.env(name, value);
    }
    finish(command.spawn().expect("it starts"), LIMIT)
}

/// A wrong endpoint is named at once: no name, no listener.
#[test]
fn an_endpoint_that_never_answers_is_named_at_once() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for endpoint in ["http://127.0.0.1:1", "http://no-such-host.invalid:9000"] {
        let started = Instant::now();
        let words = [
            "checkpoint",
            "pull",
            "--from",
            "s3://bucket/x",
            "--dir",
            text(dir.path()),
            "--job",
            "demo",
        ];
        s3(endpoint, &words)
            .expect(2)
            .says(&["nothing answers at this address", "AWS_ENDPOINT"]);
        let took = started.elapsed();
        println!("{endpoint}: {took:?}");
        // The client's tries take 20 s.
        assert!(took < Duration::from_secs(15), "{endpoint}: {took:?}");
    }
}

/// Reads a request; gives its first line.
fn request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.lines().next().unwrap_or_default().to_owned()
}

/// A store that answers slowly, and is away for a moment between two requests, is waited for.
#[test]
fn a_slow_store_that_restarts_between_two_requests_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let first = request(&mut stream);
        std::thread::sleep(Duration::from_secs(2));
        let body = "<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name><Prefix>x/demo/</Prefix><KeyCount>1</KeyCount>\
                    <MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated><CommonPrefixes><Prefix>x/demo/000000000010-g1/\
                    </Prefix></CommonPrefixes></ListBucketResult>";
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).expect("answered");
        drop((stream, listener));
        // It restarts.
        std::thread::sleep(Duration::from_secs(1));
        let listener = until("the port again", LIMIT, || TcpListener::bind(address).ok());
        let (mut stream, _) = listener.accept().expect("the client comes back");
        let second = request(&mut stream);
        let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(answer.as_bytes()).expect("answered");
        (first, second)
    });
    let dir = tempfile::tempdir().expect("a temporary folder");
    let words = [
        "checkpoint",
        "pull",
        "--from",
        "s3://bucket/x",
        "--dir",
        text(dir.path()),
        "--job",
        "demo",
    ];
    s3(&format!("http://{address}"), &words)
        .expect(2)
        .says(&["no committed checkpoint at"]);
    let (first, second) = server.join().expect("no panic");
    assert!(
        first.starts_with("GET ") && second.starts_with("HEAD "),
        "{first:?} {second:?}"
    );
}
