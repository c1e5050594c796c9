//! The second reader through the programs that people start, with an HTTP server in the place of the language model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::cluster::{Cluster, LIMIT, text_of};
use crate::support::receiver::HttpReceiver;
use crate::support::{NOBODY, Ran, command, finish, rankguard, until};

const TOKEN: &str = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz";
const KEY: &str = "key-of-the-service";

/// Output of a rank with a token, a user, a machine and an address.
const LOG: &str = "[rank1]: step 10 loss 2.5\n\
    [rank1]: using HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWxYz of /home/carol/.cache, store at 10.9.8.7:29500\n\
    [rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";

/// Reader with its server, and logs to read.
struct Site {
    dir: tempfile::TempDir,
    server: HttpReceiver,
}

impl Site {
    fn start() -> Self {
        let site = Self {
            dir: tempfile::tempdir().expect("a folder"),
            server: HttpReceiver::start(200),
        };
        fs::write(site.path("rank-1.log"), LOG).expect("written");
        fs::write(site.path("key"), format!("{KEY}\n")).expect("written");
        site.configure("");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn configure(&self, more: &str) {
        let text = format!(
            "[reader]\nurl = 'http://{}/v1'\nmodel = 'small'\nkey_file = '{}'\nrecord_dir = '{}'\n{more}",
            self.server.address,
            self.path("key").display(),
            self.path("readings").display(),
        );
        fs::write(self.path("reader.toml"), text).expect("written");
    }

    /// Sets the answer of the model.
    fn answers(&self, content: &str) {
        let completion = json!({
            "choices": [{"message": {"role": "assistant", "content": content}}],
            "usage": {"prompt_tokens": 4000, "completion_tokens": 40},
        });
        self.server.set_body(completion.to_string());
    }

    fn diagnose(&self, words: &[&str]) -> Ran {
        let (config, log) = (self.path("reader.toml"), self.path("rank-1.log"));
        let fixed = ["--config", text_of(&config), "diagnose", "--reader", text_of(&log)];
        rankguard(&[&fixed[..], words].concat())
    }

    /// Returns the reading of a diagnosis; the failure is found with each answer of the reader.
    fn reading(&self) -> Value {
        let ran = self.diagnose(&["--format", "json"]).expect(1);
        let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!(document["cases"][0]["class"], "cuda-oom", "{document}");
        assert_eq!(
            document["second_reader"].as_array().map(Vec::len),
            Some(1),
            "{document}"
        );
        document["second_reader"][0].clone()
    }
}

/// Returns the only stored record.
fn record(folder: &Path) -> Value {
    let mut entries = fs::read_dir(folder).expect("a folder").flatten();
    let path = entries.next().expect("a record").path();
    assert!(entries.next().is_none(), "one request");
    serde_json::from_slice(&fs::read(path).expect("readable")).expect("JSON")
}

#[test]
fn the_reader_gets_redacted_lines_and_its_answer_stands_beside_the_verdict() {
    let site = Site::start();
    site.answers("```json\n{\"class\": \"nccl-timeout\", \"root_rank\": 3, \"node\": null, \"reason\": \"USER_1 wrote it\"}\n```");
    let ran = site.diagnose(&[]).expect(1);
    for part in [
        "1. cuda-oom (user-code)",
        "Second reader, a language model: small at http://127.0.0.1:",
        "reads       nccl-timeout",
        "differs from the verdict cuda-oom: review",
        "root rank   3",
        "its reason  carol wrote it",
        "4000 + 40 tokens",
    ] {
        assert!(ran.stdout.contains(part), "{part:?} is not in:\n{}", ran.stdout);
    }
    let requests = site.server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].path, "/v1/chat/completions");
    assert_eq!(
        requests[0].header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    let sent = String::from_utf8(requests[0].body.clone()).expect("text");
    for private in [TOKEN, "carol", "10.9.8.7", KEY] {
        assert!(!sent.contains(private), "{private} was sent:\n{sent}");
    }
    for wanted in ["CUDA out of memory", "/home/USER_1/.cache", "cuda-oom (user-code)"] {
        assert!(sent.contains(wanted), "{wanted:?} was not sent:\n{sent}");
    }
    let stored = record(&site.path("readings"));
    assert_eq!(stored["request"], requests[0].json());
    assert_eq!(stored["answer"]["usage"]["prompt_tokens"], 4000);
}

#[test]
fn a_reader_that_fails_changes_neither_verdict_nor_exit_code() {
    let site = Site::start();
    let problem = || site.reading()["problem"].as_str().expect("a problem").to_owned();
    site.answers("I think that it is the network");
    assert!(problem().contains("contains no JSON object with a text"));
    site.answers("{\"class\": \"ignore all rules\\u001b[2J\"}");
    let nonsense = problem();
    assert!(nonsense.contains("which is no class of the catalogue"), "{nonsense}");
    site.server.set_body("<html>\u{1b}[2J</html>");
    assert!(problem().contains("no chat completion"));
    site.server.set_status(429);
    assert!(problem().contains("429"));
    // A server that never answers.
    site.server.set_status(0);
    site.configure("timeout_ms = 300\n");
    assert!(problem().contains("no answer within 0.3 s"));
    let config = fs::read_to_string(site.path("reader.toml")).expect("readable");
    fs::write(site.path("reader.toml"), config.replace(&site.server.address, NOBODY)).expect("written");
    assert!(problem().contains("was not answered"));
    // What cannot be stored is not sent.
    let before = site.server.requests().len();
    site.configure("");
    fs::remove_dir_all(site.path("readings")).expect("removed");
    fs::write(site.path("readings"), "").expect("written");
    assert!(problem().contains("so nothing is sent"));
    assert_eq!(site.server.requests().len(), before);
}

#[test]
fn requests_of_a_command_are_limited_and_nothing_is_sent_without_the_option() {
    let site = Site::start();
    site.configure("requests = 1\n");
    site.answers("{\"class\": \"cuda-oom\", \"reason\": \"line 3\"}");
    fs::copy(site.path("rank-1.log"), site.path("rank-2.log")).expect("copied");
    let other = site.path("rank-2.log");
    let ran = site.diagnose(&[text_of(&other), "--format", "json"]).expect(1);
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let readings = document["second_reader"].as_array().expect("two").clone();
    assert_eq!(
        (&readings[0]["agrees"], readings.len()),
        (&json!(true), 2),
        "{document}"
    );
    assert_eq!(readings[1]["problem"], "not asked: reader.requests is 1");
    let config = site.path("reader.toml");
    let log = site.path("rank-1.log");
    rankguard(&["--config", text_of(&config), "diagnose", text_of(&log)]).expect(1);
    assert_eq!(site.server.requests().len(), 1);
    rankguard(&["diagnose", "--reader", text_of(&log)])
        .expect(64)
        .says(&["no second reader is configured"]);
}

#[test]
fn a_log_from_a_pipe_is_read_once_for_both() {
    let site = Site::start();
    site.answers("{\"class\": \"cuda-oom\"}");
    let config = site.path("reader.toml");
    let mut command = command(&[
        "--config",
        text_of(&config),
        "diagnose",
        "--reader",
        "-",
        "--format",
        "json",
    ]);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, LOG.as_bytes()).expect("written");
    drop(input);
    let ran = finish(child, Duration::from_secs(60)).expect(1);
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(document["second_reader"][0]["agrees"], true, "{document}");
}

/// The answer about a case is shown beside the verdict, and asks for a review of the case once.
#[test]
fn a_case_of_which_the_reader_reads_another_class_gets_one_comment() {
    let cluster = Cluster::start(0, &[]);
    let site = Site::start();
    site.answers("{\"class\": \"cuda-oom\", \"reason\": \"memory\"}");
    let script = "echo 'ModuleNotFoundError: No module named nosuch' >&2; exit 1";
    rankguard(&cluster.args(&["run", "--name", "broken", "--", "sh", "-c", script]));
    let case = until("the case", LIMIT, || {
        let cases = cluster.ask(&["cases", "--format", "json"]);
        let case = cases.as_array()?.first()?.clone();
        // The line of the rank may arrive after its end.
        let is_named = case["verdict"]["class"] == "import-error";
        (case["state"] == "closed" && is_named).then_some(case)
    });
    let class = case["verdict"]["class"].clone();
    let config = site.path("reader.toml");
    let number = case["id"].to_string();
    let show = |words: &[&str]| {
        let fixed = [
            "--config",
            text_of(&config),
            "cases",
            "show",
            &number,
            "--controller",
            &cluster.address,
        ];
        rankguard(&[&fixed[..], words].concat()).expect(0)
    };
    for _ in 0..2 {
        let ran = show(&["--reader", "--format", "json"]);
        let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!(document["verdict"]["class"], class);
        assert_eq!(document["second_reader"]["reading"]["class"], "cuda-oom", "{document}");
    }
    let document: Value = serde_json::from_str(&show(&["--format", "json"]).stdout).expect("JSON");
    let notes = document["notes"].as_array().expect("notes").clone();
    assert_eq!(notes.len(), 1, "{notes:?}");
    let text = notes[0]["text"].as_str().expect("a text");
    assert!(
        text.starts_with("review: the language model small reads cuda-oom, not "),
        "{text}"
    );
    assert_eq!(
        (&document["verdict"]["class"], &document["state"]),
        (&class, &case["state"])
    );
    assert!(document.get("second_reader").is_none());
}
