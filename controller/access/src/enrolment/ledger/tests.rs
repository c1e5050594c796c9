use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const NOW: Timestamp = Timestamp(1_000_000_000_000);

fn request(nodes: &[&str], uses: u32) -> NewJoinToken {
    NewJoinToken {
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        uses,
        valid: Duration::from_secs(3_600),
        may_replace: false,
    }
}

fn attempt<'a>(token: &'a TokenSecret, node: &'a str, key: u8) -> IssueAttempt<'a> {
    IssueAttempt {
        token: token.expose(),
        node,
        key: [key; 32],
        now: NOW,
    }
}

fn signed(serial: &str) -> Result<(String, Timestamp, String), String> {
    Ok((
        serial.to_owned(),
        NOW.after(Duration::from_secs(86_400)),
        format!("PEM {serial}"),
    ))
}

fn ledger(dir: &tempfile::TempDir) -> EnrolmentLedger {
    EnrolmentLedger::open(dir.path(), NOW).expect("a sound ledger")
}

fn refusal(ledger: &EnrolmentLedger, attempt: IssueAttempt<'_>) -> String {
    let refused = ledger.issue(attempt, |_| false, || panic!("nothing is signed"));
    refused.expect_err("a refusal").to_string()
}

#[test]
fn a_token_is_for_its_nodes_until_it_ends() {
    let dir = tempfile::tempdir().expect("a folder");
    let ledger = ledger(&dir);
    let (token, secret) = ledger
        .create(&request(&["n1", "n2"], 2), "operator ada", NOW)
        .expect("created");
    let id = token.details.id;
    assert!(refusal(&ledger, attempt(&secret, "n3", 1)).contains("is not for node n3"));
    assert!(refusal(&ledger, attempt(&secret, "N1", 1)).contains("is not for node N1"));
    let unknown = TokenSecret::generate_join().expect("random bytes");
    assert!(refusal(&ledger, attempt(&unknown, "n1", 1)).contains("does not know"));
    let access = TokenSecret::generate().expect("random bytes");
    assert!(refusal(&ledger, attempt(&access, "n1", 1)).contains("is no join token"));
    let late = IssueAttempt {
        now: token.details.expires_at,
        ..attempt(&secret, "n1", 1)
    };
    assert!(refusal(&ledger, late).contains("has expired"));
    ledger.revoke(&id, "operator ada", NOW).expect("revoked");
    assert!(refusal(&ledger, attempt(&secret, "n1", 1)).contains("is revoked"));
    assert!(matches!(
        ledger.revoke(&id, "ada", NOW),
        Err(JoinTokenError::Revoked { .. })
    ));
}

/// N uses are N certificates, however many nodes ask at once, and after a restart.
#[test]
fn concurrent_nodes_get_no_more_certificates_than_the_token_permits() {
    let dir = tempfile::tempdir().expect("a folder");
    let ledger = ledger(&dir);
    let names: Vec<String> = (0..24).map(|number| format!("n{number}")).collect();
    let nodes: BTreeSet<String> = names.iter().cloned().collect();
    let wanted = NewJoinToken {
        nodes,
        ..request(&[], 5)
    };
    let (token, secret) = ledger.create(&wanted, "ada", NOW).expect("created");
    let made = AtomicU32::new(0);
    let issued = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for (key, node) in (0..).zip(&names) {
            let (ledger, secret, made, issued) = (&ledger, &secret, &made, &issued);
            scope.spawn(move || {
                let sign = || {
                    made.fetch_add(1, Ordering::SeqCst);
                    signed(node)
                };
                if ledger.issue(attempt(secret, node, key), |_| false, sign).is_ok() {
                    issued.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!((made.into_inner(), issued.into_inner()), (5, 5));
    let state = |ledger: &EnrolmentLedger| ledger.list(NOW)[0].clone();
    assert_eq!(state(&ledger).state, JoinTokenState::UsedUp);
    drop(ledger);
    for _ in 0..2 {
        let again = EnrolmentLedger::open(dir.path(), NOW).expect("a sound ledger");
        assert_eq!(state(&again).details.used, 5);
        assert_eq!(state(&again).details.id, token.details.id);
        let left = names.iter().zip(0..).filter(|(node, key)| {
            let refused = again.issue(attempt(&secret, node, *key), |_| false, || panic!("used up"));
            refused.is_err()
        });
        assert_eq!(left.count(), 19, "the five receive theirs again");
    }
}

#[test]
fn a_repetition_with_the_same_key_is_the_same_certificate_and_another_key_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let ledger = ledger(&dir);
    let (_, secret) = ledger.create(&request(&["n1"], 3), "ada", NOW).expect("created");
    let first = ledger
        .issue(attempt(&secret, "n1", 1), |_| false, || signed("a1"))
        .expect("issued");
    let again = ledger
        .issue(attempt(&secret, "n1", 1), |_| false, || panic!("signed before"))
        .expect("the same");
    assert_eq!((first.certificate, true), (again.certificate, again.is_repeated));
    assert_eq!(ledger.list(NOW)[0].details.used, 1);
    let text = refusal(&ledger, attempt(&secret, "n1", 2));
    assert!(text.contains("a1") && text.contains("stolen"), "{text}");
    // The certificate is revoked: the node may have another key, and not the same.
    let stolen = ledger.issue(attempt(&secret, "n1", 1), |serial| serial == "a1", || signed("x"));
    assert!(matches!(stolen, Err(EnrolmentRefusal::RevokedKey)));
    ledger
        .issue(attempt(&secret, "n1", 2), |serial| serial == "a1", || signed("a2"))
        .expect("issued");
    let (_, replacing) = ledger
        .create(
            &NewJoinToken {
                may_replace: true,
                ..request(&["n1"], 1)
            },
            "ada",
            NOW,
        )
        .expect("created");
    ledger
        .issue(attempt(&replacing, "n1", 3), |_| false, || signed("a3"))
        .expect("issued");
    let later = IssueAttempt {
        now: NOW.after(Duration::from_secs(1_800)),
        ..attempt(&replacing, "n1", 4)
    };
    assert!(refusal(&ledger, later).contains("used up"));
}

/// A node that has a certificate by hand, or has renewed it, is not evicted by a token.
#[test]
fn certificates_without_a_token_count_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let ledger = ledger(&dir);
    let (_, secret) = ledger.create(&request(&["n1"], 3), "ada", NOW).expect("created");
    let certificate = |serial: &str, seconds: u64| NodeCertificate {
        node: "n1".to_owned(),
        serial: serial.to_owned(),
        until: NOW.after(Duration::from_secs(seconds)),
        token: None,
        key: String::new(),
        chain: String::new(),
    };
    ledger.note(certificate("b1", 9_000), false).expect("noted");
    ledger.note(certificate("b0", 10), false).expect("noted");
    assert!(
        refusal(&ledger, attempt(&secret, "n1", 1)).contains("b1"),
        "the longer one is known"
    );
    ledger.note(certificate("b2", 20), true).expect("noted");
    assert!(
        refusal(&ledger, attempt(&secret, "n1", 1)).contains("b2"),
        "the newer one is known"
    );
    let later = IssueAttempt {
        now: NOW.after(Duration::from_secs(21)),
        ..attempt(&secret, "n1", 1)
    };
    ledger
        .issue(later, |_| false, || signed("b3"))
        .expect("the other one has expired");
}

#[test]
fn what_is_no_token_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let ledger = ledger(&dir);
    let none = request(&[], 1);
    let slash = request(&["a/b"], 1);
    let unused = request(&["n1"], 0);
    let long = NewJoinToken {
        valid: Duration::from_secs(31 * 86_400),
        ..request(&["n1"], 1)
    };
    for wrong in [none, slash, unused, long] {
        assert!(ledger.create(&wrong, "ada", NOW).is_err(), "{wrong:?}");
    }
    assert_eq!(
        std::fs::read_dir(dir.path()).expect("a folder").count(),
        0,
        "nothing is written"
    );
}
