//! Nodes in memory: pages, watches, versions that expire, servers that go away.

use crate::support::{Bench, TOKEN, block_on, until};

/// Names of the nodes in memory; none while the server does not answer.
fn names(bench: &Bench) -> Vec<String> {
    let nodes = bench.watch.nodes().ok().flatten().unwrap_or_default();
    nodes.into_iter().map(|node| node.name).collect()
}

#[test]
fn thousands_of_nodes_are_listed_in_pages_and_a_page_that_expired_begins_the_list_anew() {
    block_on(async {
        let bench = Bench::start(2_500);
        bench.server.cluster().expire_pages(1);
        bench.watch.list().await.expect("listed");
        assert_eq!(names(&bench).len(), 2_500);
        let lists = bench.server.cluster().take_requests();
        // One page, one refusal, five pages.
        assert_eq!(lists.iter().filter(|request| request.code == 410).count(), 1);
        assert_eq!(lists.len(), 7);
        // A server whose pages always expire is an error and no endless loop.
        bench.server.cluster().expire_pages(1_000);
        let problem = bench.watch.list().await.expect_err("expired");
        assert!(problem.is_expired(), "{problem}");
        // An empty cluster is answered by `null`.
        let empty = Bench::start(0);
        empty.watch.list().await.expect("listed");
        assert!(names(&empty).is_empty() && empty.watch.nodes().is_ok());
    });
}

#[test]
fn changes_arrive_by_the_watch_without_a_second_list() {
    block_on(async {
        let bench = Bench::start(2);
        let watch = bench.watch.clone();
        let follower = tokio::spawn(async move { watch.run().await });
        until("the list", || names(&bench) == ["n0", "n1"]).await;
        bench.server.cluster().add_node("n2");
        until("a new node", || names(&bench).len() == 3).await;
        bench.server.cluster().delete_node("n0");
        until("a deletion", || names(&bench) == ["n1", "n2"]).await;
        // A rename is a deletion and a new node.
        {
            let mut cluster = bench.server.cluster();
            cluster.delete_node("n1");
            cluster.add_node("n9");
        }
        until("a rename", || names(&bench) == ["n2", "n9"]).await;
        let lists = bench.server.cluster().take_requests();
        assert_eq!(lists.iter().filter(|request| request.verb == "list").count(), 1);
        follower.abort();
    });
}

#[test]
fn a_version_that_expired_and_a_server_that_was_away_are_followed_by_what_is_true_now() {
    block_on(async {
        let bench = Bench::start(2);
        let watch = bench.watch.clone();
        let follower = tokio::spawn(async move { watch.run().await });
        until("the list", || names(&bench).len() == 2).await;
        // 410: the deletion is in no history.
        {
            let mut cluster = bench.server.cluster();
            cluster.delete_node("n0");
            cluster.expire_history();
        }
        until("the list after 410", || names(&bench) == ["n1"]).await;
        // The server is away: the nodes of before are not passed on.
        bench.server.cluster().set_down(true);
        until("the report of the silence", || bench.watch.nodes().is_err()).await;
        {
            let mut cluster = bench.server.cluster();
            cluster.add_node("n5");
            cluster.set_down(false);
        }
        until("the nodes after the return", || names(&bench) == ["n1", "n5"]).await;
        follower.abort();
    });
}

#[test]
fn a_token_that_was_replaced_is_read_again() {
    block_on(async {
        let bench = Bench::start(1);
        bench.watch.list().await.expect("listed");
        bench.server.cluster().set_tokens(&["second-token"]);
        let refused = bench.watch.list().await.expect_err("the old token");
        assert_eq!(refused.code(), 401);
        assert!(refused.is_lasting());
        // The kubelet replaces the file.
        std::fs::write(bench.token_file(), "second-token\n").expect("written");
        bench.watch.list().await.expect("the new token");
        // A connection without the authority of the server is refused.
        std::fs::write(bench.token_file(), TOKEN).expect("written");
        let access = rankguard_kubernetes::ServerAccess::of_address(&bench.server.url, Some(bench.token_file()), None);
        let stranger = rankguard_kubernetes::ApiClient::new(access.expect("an address")).expect("a client");
        let problem = stranger.node("n0").await.expect_err("an unknown authority");
        assert!(problem.to_string().contains("certificate"), "{problem}");
    });
}
