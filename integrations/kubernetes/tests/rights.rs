//! Rights of RBAC in the manifest, lease, and addresses.

use std::collections::BTreeSet;
use std::path::Path;

use rankguard_fake_kubernetes::{AccessRules, yaml_documents};
use rankguard_kubernetes::{AccessError, LeaseClaim, ServerAccess, WantedCondition};
use rankguard_model::NodeState;

use crate::conditions::view;
use crate::support::{Bench, block_on, until};

const NAMESPACE: &str = "rankguard";
const LEASE: &str = "rankguard-sync";

fn shipped_rules() -> AccessRules {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/sync.yaml");
    let text = std::fs::read_to_string(path).expect("the manifest");
    AccessRules::of_documents(&yaml_documents(&text))
}

fn claim(bench: &Bench, identity: &str) -> LeaseClaim {
    LeaseClaim::new(bench.api.clone(), NAMESPACE, LEASE, identity.to_owned())
}

/// Makes every kind of request that the program makes.
async fn use_all(bench: &Bench) {
    let watch = bench.watch.clone();
    let follower = tokio::spawn(async move { watch.run().await });
    until("a watch", || {
        let nodes = bench.watch.nodes();
        bench.server.cluster().watches() > 0 && matches!(nodes, Ok(Some(_)))
    })
    .await;
    follower.abort();
    let action = bench.action("n0", &["ticket"]).await;
    bench.writer.write(&action).await.expect("written");
    let wanted = WantedCondition::of(
        &view(NodeState::Healthy),
        &rankguard_kubernetes::ControllerCordon::default(),
        None,
    );
    let condition = wanted.at(None, bench.api.server_time());
    assert!(bench.writer.report("n0", &condition).await.expect("written"));
    let pods = bench.api.pods_on("n0").await.expect("listed");
    bench.api.evict(&pods[0]).await.expect("evicted");
    let mut lease = claim(bench, "one");
    assert!(lease.refresh().await.expect("created"));
    // A new program with the same identity renews, which updates.
    assert!(claim(bench, "one").refresh().await.expect("updated"));
}

#[test]
fn the_manifest_grants_the_rights_that_are_used_and_no_others() {
    block_on(async {
        let bench = Bench::start(1);
        let rules = shipped_rules();
        {
            let mut cluster = bench.server.cluster();
            cluster.set_rules(rules.clone());
            cluster.add_pod("train", "worker-0", "n0", serde_json::json!({}));
        }
        use_all(&bench).await;
        let requests = bench.server.cluster().take_requests();
        let refused: Vec<_> = requests.iter().filter(|request| request.code == 403).collect();
        assert!(refused.is_empty(), "{refused:?}");
        let used: BTreeSet<String> = requests.iter().map(|request| request.right()).collect();
        assert_eq!(used, rules.texts());
        // The lease of another namespace is none of its business.
        let mut elsewhere = LeaseClaim::new(bench.api.clone(), "default", LEASE, "one".to_owned());
        assert_eq!(elsewhere.refresh().await.expect_err("no right").code(), 403);
    });
}

#[test]
fn one_of_two_programs_holds_the_lease_until_it_ends_or_releases_it() {
    block_on(async {
        let bench = Bench::start(0);
        let (mut one, mut two) = (claim(&bench, "one"), claim(&bench, "two"));
        assert!(one.refresh().await.expect("an answer"));
        assert!(!two.refresh().await.expect("an answer"));
        assert_eq!(two.holder(), "one");
        // Between renewals no request is made.
        bench.server.cluster().take_requests();
        assert!(one.refresh().await.expect("an answer"));
        assert!(!two.refresh().await.expect("an answer"));
        assert!(bench.server.cluster().take_requests().is_empty());
        one.release().await.expect("released");
        assert_eq!(bench.server.cluster().lease_holder(NAMESPACE, LEASE), "");
        assert!(claim(&bench, "three").refresh().await.expect("an answer"));
        // A release takes nothing from a later holder.
        one.release().await.expect("nothing to release");
        assert_eq!(bench.server.cluster().lease_holder(NAMESPACE, LEASE), "three");
    });
}

#[test]
fn the_lease_of_a_program_that_died_is_taken_after_its_duration_whatever_its_clock_said() {
    block_on(async {
        let bench = Bench::start(0);
        // Its renewal time is absent, as if its clock were wrong; the duration is that of its lease.
        bench.server.cluster().hold_lease(NAMESPACE, LEASE, "dead", 1);
        let mut one = claim(&bench, "one");
        assert!(!one.refresh().await.expect("an answer"));
        let mut takes = false;
        for _ in 0..200 {
            takes = one.refresh().await.expect("an answer");
            if takes {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert!(takes && bench.server.cluster().lease_holder(NAMESPACE, LEASE) == "one");
    });
}

#[test]
fn a_token_is_sent_over_tls_or_to_this_machine_only() {
    let of = |text: &str| ServerAccess::of_address(text, None, None);
    assert!(matches!(of("http://10.0.0.1:8001"), Err(AccessError::Plain { .. })));
    assert!(matches!(of("http://example.com"), Err(AccessError::Plain { .. })));
    assert!(of("http://127.0.0.1:8001").is_ok() && of("http://[::1]:8001").is_ok() && of("http://localhost").is_ok());
    for wrong in [
        "",
        "10.0.0.1:6443",
        "ftp://host",
        "https://user:secret@host",
        "https://host/?x=1",
        "unix:///run/x",
    ] {
        assert!(matches!(of(wrong), Err(AccessError::Address { .. })), "{wrong}");
    }
    let pod = |host| {
        ServerAccess::of_pod(Some(host), Some("443"))
            .expect("an address")
            .server
            .to_string()
    };
    assert_eq!(pod("10.96.0.1"), "https://10.96.0.1/");
    assert_eq!(pod("fd00::1"), "https://[fd00::1]/");
    assert!(matches!(ServerAccess::of_pod(None, None), Err(AccessError::NoServer)));
    // A server below a path, as behind a proxy of several clusters.
    assert_eq!(
        of("https://host/k8s/c-1").expect("an address").server.path(),
        "/k8s/c-1/"
    );
}
