use proptest::prelude::*;

use super::*;

fn redacted(line: &str) -> String {
    Redactor::new(["gpu-07".to_owned(), "gpu-0".to_owned()], ["adal".to_owned()]).line(line)
}

#[test]
fn secrets_leave_no_trace() {
    let cases = [
        (
            "wandb: api_key=0123456789abcdef0123456789abcdef01234567",
            "wandb: api_key=[secret]",
        ),
        ("HF_TOKEN: \"hf_AbCdEfGhIjKlMnOpQrSt\"", "HF_TOKEN: \"[secret]\""),
        (
            "{'password': 'pa55', 'user': 'bob'}",
            "{'password': '[secret]', 'user': 'USER_1'}",
        ),
        (
            "Authorization: Bearer abcdef0123456789",
            "Authorization: [secret] [secret]",
        ),
        (
            "git clone https://bob:t0ps3cret@example.com/x.git",
            "git clone https://HOST_1/x.git",
        ),
        (
            "GET https://bucket.s3.amazonaws.com/a?X-Amz-Signature=ff00&X-Amz-Credential=AKIA/x 403",
            "GET https://HOST_1/a?[query] 403",
        ),
        ("using AKIAIOSFODNN7EXAMPLE now", "using [secret] now"),
        ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.c2ln expired", "jwt [secret] expired"),
        (
            "key QmFzZTY0S2V5MTIzNDU2Nzg5MEFCQ0RFRg== refused",
            "key [secret] refused",
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(redacted(line), expected, "{line}");
    }
}

#[test]
fn users_and_machines_become_aliases() {
    let cases = [
        (
            "File \"/home/bob/train.py\", line 3",
            "File \"/home/USER_1/train.py\", line 3",
        ),
        (
            "slurmstepd: error: *** JOB 7 ON gpu-07 ***",
            "slurmstepd: error: *** JOB 7 ON NODE_1 ***",
        ),
        ("gpu-07.cluster.internal and gpu-07:123", "NODE_1 and NODE_1:123"),
        ("gpu-071 is another", "gpu-071 is another"),
        (
            "connect to 10.7.35.246:29500 from 10.7.35.246",
            "connect to ADDRESS_1:29500 from ADDRESS_1",
        ),
        ("[fe80:0:0:0:aa:bb:cc:dd]:80", "[ADDRESS_1]:80"),
        ("uid=1000(bob) gid=1000(staff)", "uid=1000(USER_1) gid=1000(USER_2)"),
        ("ssh bob@login1", "ssh USER_1@login1"),
        ("mail to bob@example.org", "mail to [mailbox]"),
        ("/data/adal/run and adal_x", "/data/USER_1/run and adal_x"),
        ("device aa:bb:cc:dd:ee:0f up", "device DEVICE_1 up"),
        ("node id 0123456789abcdef0123456789abcdef0123 died", "node id ID_1 died"),
        ("GPU-01234567-89ab-cdef-0123-456789abcdef lost", "DEVICE_1 lost"),
    ];
    for (line, expected) in cases {
        assert_eq!(redacted(line), expected, "{line}");
    }
}

#[test]
fn lines_of_training_stay_readable() {
    for line in [
        "iteration 100/5000 | tokens per sec: 4096 | num_tokens=8192 | tokenizer=gpt2 | lm loss: 3.14",
        "[rank3]:   File \"/opt/conda/lib/python3.12/site-packages/torch/nn/modules/module.py\", line 1511",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        "frame #1: _ZN3c106detail14torchCheckFailEPKcS2_jRKSs + 0x64 (0x7f1e in libc10.so)",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
        "out = self.net(x)  # torch 2.15.0, 10:04:11",
        "root started sshd for user root in /home/user",
        "ProcessGroupNCCL preparing to dump debug info, last enqueued: 1024, last completed: 1023",
    ] {
        assert_eq!(redacted(line), line);
    }
}

#[test]
fn an_alias_names_the_same_thing_in_all_lines_and_comes_back() {
    let mut redactor = Redactor::new(["gpu-07".to_owned()], []);
    let first = redactor.line("gpu-07 lost 10.0.0.1");
    let second = redactor.line("10.0.0.1 was gpu-07, 10.0.0.2 was not");
    assert_eq!(first, "NODE_1 lost ADDRESS_1");
    assert_eq!(second, "ADDRESS_1 was NODE_1, ADDRESS_2 was not");
    assert_eq!(
        redactor.restore("NODE_1 (ADDRESS_2), not NODE_10 or NODE_2"),
        "gpu-07 (10.0.0.2), not NODE_10 or NODE_2"
    );
}

proptest! {
    /// A key of any form that its issuer documents is removed wherever it stands.
    #[test]
    fn a_key_is_removed_from_any_line(
        before in "[ -~]{0,40}",
        key in "(AKIA[0-9A-Z]{16}|hf_[A-Za-z0-9]{34}|ghp_[A-Za-z0-9]{36}|sk-[A-Za-z0-9]{40}|glpat-[A-Za-z0-9]{20})",
        after in "[ -~]{0,40}",
    ) {
        let line = format!("{before} {key} {after}");
        prop_assert!(!redacted(&line).contains(&key));
    }

    /// A secret in a URL is removed, of any letters and digits.
    #[test]
    fn the_user_and_query_of_a_url_are_removed(user in "[a-z]{3,8}", key in "[A-Za-z0-9]{12,40}", path in "[a-z]{1,8}") {
        let line = format!("GET https://{user}:{key}@store.example.com/{path}?sig={key} failed");
        let text = redacted(&line);
        prop_assert!(!text.contains(&key) && !text.contains("store.example"), "{}", text);
    }

    #[test]
    fn any_text_is_taken(line in "\\PC{0,200}") {
        redacted(&line);
    }

    #[test]
    fn addresses_are_removed(a in 0_u8.., b in 0_u8.., c in 0_u8.., d in 0_u8..) {
        let address = format!("{a}.{b}.{c}.{d}");
        let text = redacted(&format!("peer {address}<29500> reset"));
        prop_assert!(!text.contains(&address), "{}", text);
    }
}
