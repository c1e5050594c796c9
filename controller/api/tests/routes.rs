//! Routes: documents, pages, filters and errors, and generated requests against the OpenAPI document.

use std::collections::{BTreeMap, BTreeSet};

use hyper::StatusCode;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use rankguard_api::ApiService;
use rankguard_core::{DecisionState, Event};
use rankguard_model::{CaseId, CaseNoteKind};
use serde_json::Value;

use crate::common::{Answer, SampleCluster, get, get_with, job_names, node_name, node_names};
use crate::schema::{differences, field_names};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// Encodes every byte that has a meaning in a URI.
fn encode(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Collects all pages of a list.
async fn all_pages(service: &ApiService, path: &str, limit: usize) -> Vec<Value> {
    let mut items = Vec::new();
    let mut cursor = None::<String>;
    loop {
        let more = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let sign = if path.contains('?') { '&' } else { '?' };
        let answer = get(service, &format!("{path}{sign}limit={limit}{more}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
        let page = answer.json();
        let found = page["items"].as_array().expect("items");
        assert!(found.len() <= limit);
        items.extend(found.iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return items,
        }
    }
}

fn names<'v>(items: &'v [Value], field: &str) -> Vec<&'v str> {
    items.iter().filter_map(|item| item[field].as_str()).collect()
}

#[test]
fn lists_contain_what_the_status_shows() {
    let cluster = SampleCluster::new(20, 12);
    let (service, _feed, _) = cluster.service();
    let status = cluster.state.status(cluster.events.last().expect("events").at);
    assert!(cluster.state.cases().len() > 5, "{} cases", cluster.state.cases().len());
    assert!(!cluster.state.plans().is_empty(), "no plan");
    block_on(async {
        let nodes = all_pages(&service, "/api/v1/nodes", 7).await;
        let wanted: Vec<&str> = status.nodes.iter().map(|node| node.node.as_str()).collect();
        assert_eq!(names(&nodes, "name"), wanted);
        for (node, view) in nodes.iter().zip(&status.nodes) {
            assert_eq!(node["reason"].as_str(), view.reason.as_deref());
            assert_eq!(node["job"].as_str(), view.job.as_ref().map(|job| job.as_str()));
        }
        let jobs = all_pages(&service, "/api/v1/jobs", 1).await;
        for (job, view) in jobs.iter().zip(&status.jobs) {
            assert_eq!(job["name"], view.spec.id.as_str());
            assert!(job["reason"].as_str() == view.reason.as_deref() || view.reason.is_some());
        }
        assert_eq!(jobs.len(), status.jobs.len());
        let cases = all_pages(&service, "/api/v1/cases", 2).await;
        let ids: Vec<u64> = cases.iter().filter_map(|case| case["id"].as_u64()).collect();
        let wanted: Vec<u64> = cluster.state.cases().keys().rev().map(|id| id.0).collect();
        assert_eq!(ids, wanted);
        let plans = all_pages(&service, "/api/v1/plans", 1).await;
        assert_eq!(plans.len(), cluster.state.plans().len());
        let job = get(&service, "/api/v1/jobs/train").await;
        let text = String::from_utf8_lossy(&job.body).into_owned();
        assert!(!text.contains("hidden-credential"), "{text}");
        let health = all_pages(&service, "/api/v1/health/nodes", 1_000).await;
        let cordoned = health
            .iter()
            .find(|node| node["node"] == node_name(19))
            .expect("the node");
        assert_eq!(
            (&cordoned["reason_class"], &cordoned["is_schedulable"]),
            (&"cordoned".into(), &false.into())
        );
        let text = serde_json::to_string(&health).expect("JSON");
        assert!(!text.contains("train"), "it names a job: {text}");
        let node = get(&service, "/api/v1/nodes/n00000").await.json();
        assert_eq!(node["devices"][0]["kind"], "gpu", "{node}");
    });
}

#[test]
fn pages_stay_in_place_while_entries_appear() {
    let mut cluster = SampleCluster::new(10, 6);
    let (service, mut feed, reader) = cluster.service();
    block_on(async {
        let first = get(&service, "/api/v1/cases?limit=3").await.json();
        let next = first["next"].as_str().expect("a cursor").to_owned();
        let before = get(&service, &format!("/api/v1/cases?limit=1000&cursor={next}"))
            .await
            .json();
        let known = cluster.events.len();
        cluster.apply(Event::NodeUncordoned { node: "n00009".into() });
        for number in 0..4 {
            cluster.break_gpu(&node_name(9), 20 + number);
            cluster.settle();
        }
        let added = cluster.events.split_off(known);
        feed.push(added, 1, &cluster.state);
        let cases = cluster.state.cases().len();
        loop {
            let all = get(&service, "/api/v1/cases?limit=1000").await.json();
            if all["items"].as_array().map(Vec::len) == Some(cases) {
                break;
            }
            tokio::task::yield_now().await;
        }
        let after = get(&service, &format!("/api/v1/cases?limit=1000&cursor={next}"))
            .await
            .json();
        let ids = |page: &Value| -> Vec<u64> {
            let items = page["items"].as_array().into_iter().flatten();
            items.filter_map(|case| case["id"].as_u64()).collect()
        };
        assert_eq!(ids(&before), ids(&after));
    });
    drop(reader);
}

#[test]
fn cases_are_selected_as_by_the_command_line() {
    let cluster = SampleCluster::new(10, 6);
    let (service, _feed, _) = cluster.service();
    let all = cluster.state.cases().len();
    block_on(async {
        let count = async |query: &str| {
            all_pages(&service, &format!("/api/v1/cases?{query}"), 1_000)
                .await
                .len()
        };
        assert_eq!(count("class=gpu-fallen-off-bus").await, all);
        assert_eq!(count("layer=network").await, 0);
        assert_eq!(count("layer=hardware&drills=false").await, all);
        assert_eq!(count("since=2200-01-01T00:00:00Z").await, 0);
        assert!(count("node=n00001").await < all);
        let open = count("open=true").await;
        assert_eq!(open + count("open=false").await, all);
        for (query, field) in [
            ("class=gpu-fallen-of-bus", "class"),
            ("layer=cosmic", "layer"),
            ("taxonomy=hu", "taxonomy"),
            ("job=nope", "job"),
            ("node=n99", "node"),
            ("state=broken", "state"),
            ("limit=1001", "limit"),
            ("cursor=zz", "cursor"),
        ] {
            let answer = get(&service, &format!("/api/v1/cases?{query}")).await;
            let problem = answer.json();
            assert_eq!(
                (answer.status, &problem["field"]),
                (StatusCode::BAD_REQUEST, &field.into()),
                "{problem}"
            );
        }
        for class in ["gpu-fallen-of-bus", "nope"] {
            let answer = get(&service, &format!("/api/v1/cases?class={class}")).await.json();
            let known = answer["known"].as_array().into_iter().flatten();
            let mut known = known.filter_map(Value::as_str);
            assert!(known.any(|known| known == "gpu-fallen-off-bus"), "{answer}");
        }
        let answer = get(&service, "/api/v1/cases?colour=red").await.json();
        assert_eq!(answer["type"], "urn:rankguard:problem:unknown-parameter");
        let known: BTreeSet<&str> = answer["known"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        assert!(
            known.is_superset(&BTreeSet::from(["job", "node", "class", "since"])),
            "{answer}"
        );
    });
}

/// The HTTP API and the commands have the same figures in the same fields.
#[test]
fn the_use_of_time_is_that_of_the_command_line() {
    let cluster = SampleCluster::new(20, 12);
    let (service, _feed, _) = cluster.service();
    block_on(async {
        let all = get(&service, "/api/v1/efficiency").await.json();
        let jobs = all["jobs"].as_array().expect("jobs");
        assert_eq!(jobs.len(), cluster.state.jobs().len());
        for job in jobs {
            let name = job["job"].as_str().expect("a name");
            let one = get(&service, &format!("/api/v1/jobs/{name}/efficiency")).await.json();
            let filtered = get(&service, &format!("/api/v1/efficiency?job={name}")).await.json();
            let view = cluster.state.job_view(&name.into(), cluster.now).expect("a job");
            let time = rankguard_summary::JobTime::of(&view, cluster.now);
            let mut shown = serde_json::to_value(&time).expect("JSON");
            let times = ["submitted_at", "until"];
            for time in times {
                shown[time] = one[time].clone();
            }
            assert_eq!(one, shown);
            assert_eq!(filtered["jobs"].as_array().map(Vec::len), Some(1));
            assert_eq!(filtered["jobs"][0], one);
            let part = |field: &str| one[field].as_i64().expect("milliseconds");
            let parts = [
                "productive_ms",
                "repeated_ms",
                "starting_ms",
                "idle_ms",
                "waiting_ms",
                "unmeasured_ms",
            ];
            assert_eq!(parts.map(part).iter().sum::<i64>(), part("wall_ms"), "{one}");
        }
        let unknown = get(&service, "/api/v1/efficiency?job=nope").await;
        assert_eq!(
            (unknown.status, &unknown.json()["field"]),
            (StatusCode::BAD_REQUEST, &"job".into())
        );
    });
}

/// Every case is in one group, that of its newest correction; groups add up to the selection.
#[test]
fn failures_are_counted_by_class_place_and_published_category() {
    let mut cluster = SampleCluster::new(10, 6);
    // The same GPU fails twice.
    cluster.apply(Event::NodeUncordoned {
        node: node_name(1).into(),
    });
    cluster.break_gpu(&node_name(1), 1);
    cluster.settle();
    let ids: Vec<CaseId> = cluster.state.cases().keys().copied().collect();
    let class = "gpu-thermal".into();
    cluster.note_case(ids[0], "ada", CaseNoteKind::Corrected { class }, "the fan");
    let (service, _feed, _) = cluster.service();
    let all = ids.len() as u64;
    block_on(async {
        let mix = async |query: &str| {
            let answer = get(&service, &format!("/api/v1/failures?{query}")).await;
            assert_eq!(answer.status, StatusCode::OK, "{query}: {}", answer.json());
            answer.json()
        };
        let counts = |mix: &Value| -> BTreeMap<String, u64> {
            let groups = mix["groups"].as_array().expect("groups").iter();
            let counted = groups.map(|group| (group["key"].as_str().expect("a key"), group["cases"].as_u64()));
            counted
                .map(|(key, cases)| (key.to_owned(), cases.expect("a number")))
                .collect()
        };
        let mut classes = BTreeMap::from([("gpu-thermal".to_owned(), 1)]);
        let mut nodes: BTreeMap<String, u64> = BTreeMap::new();
        for (id, case) in cluster.state.cases() {
            if *id != ids[0] {
                *classes.entry(case.verdict.class.to_string()).or_default() += 1;
            }
            if let Some(node) = case.verdict.blamed.node() {
                *nodes.entry(node.to_string()).or_default() += 1;
            }
        }
        let by_class = mix("").await;
        assert_eq!(counts(&by_class), classes, "{by_class}");
        let first = &by_class["groups"][0]["key"];
        assert_eq!(first, "gpu-fallen-off-bus", "the largest is not first");
        let by_node = counts(&mix("by=node").await);
        assert_eq!(by_node, nodes);
        assert!(by_node["n00001"] > 1, "no repeat offender: {by_node:?}");
        let sizes: Vec<u64> = counts(&mix("by=blamed").await).into_values().collect();
        assert_eq!(sizes.iter().sum::<u64>(), all);
        let by_domain = mix("by=failure-domain").await;
        let placed: u64 = nodes.values().sum();
        assert_eq!(counts(&by_domain), BTreeMap::from([("rack1".to_owned(), placed)]));
        assert_eq!(by_domain["without_group"], all - placed);
        let taxonomies = get(&service, "/api/v1/taxonomies").await.json();
        for taxonomy in names(taxonomies["items"].as_array().expect("items"), "id") {
            let mix = mix(&format!("by={taxonomy}")).await;
            let placed: u64 = counts(&mix).values().sum();
            let rest = mix["without_group"].as_u64().expect("a number");
            assert_eq!((placed + rest, &mix["cases"]), (all, &all.into()), "{taxonomy}: {mix}");
            assert!(mix["taxonomy"].is_string(), "{mix}");
        }
        let none = mix("by=layer&since=2200-01-01T00:00:00Z").await;
        assert_eq!(
            (&none["cases"], &none["groups"]),
            (&0.into(), &Value::Array(Vec::new()))
        );
        let unknown = get(&service, "/api/v1/failures?by=colour").await;
        assert_eq!(
            (unknown.status, &unknown.json()["field"]),
            (StatusCode::BAD_REQUEST, &"by".into())
        );
    });
}

#[test]
fn a_node_is_draining_while_ranks_are_there_and_drained_after_that() {
    let mut cluster = SampleCluster::new(6, 0);
    for number in 0..6 {
        cluster.apply(Event::NodeDrained {
            node: node_name(number).into(),
            reason: "upgrade".to_owned(),
        });
    }
    let (service, _feed, _) = cluster.service();
    block_on(async {
        let nodes = all_pages(&service, "/api/v1/nodes", 100).await;
        let health = all_pages(&service, "/api/v1/health/nodes", 100).await;
        let mut classes = BTreeSet::new();
        for (node, health) in nodes
            .iter()
            .zip(&health)
            .filter(|(node, _)| node["state"] == "cordoned")
        {
            let expected = if node["job"].is_null() { "drained" } else { "draining" };
            assert_eq!(health["reason_class"], expected, "{node}");
            assert!(
                node["reason"].as_str().is_some_and(|reason| reason.contains(expected)),
                "{node}"
            );
            classes.insert(expected);
        }
        assert_eq!(classes.len(), 2, "{nodes:?}");
    });
}

#[test]
fn a_device_that_a_case_mentions_as_noise_has_no_case() {
    let mut cluster = SampleCluster::new(4, 0);
    let node = node_name(0);
    cluster.report_link_up(&node, "mlx5_0");
    cluster.report_gpu(&node, "0000:9b:00", "NVRM: Xid 79".to_owned());
    cluster.settle();
    let mentions = |case: &rankguard_model::Case| case.findings.iter().any(|finding| finding.text.contains("mlx5_0"));
    assert!(
        cluster.state.cases().values().any(mentions),
        "the link is in the evidence"
    );
    let (service, _feed, _) = cluster.service();
    block_on(async {
        let found = get(&service, &format!("/api/v1/nodes/{node}")).await.json();
        assert_eq!(
            names(found["devices"].as_array().expect("a list"), "kind"),
            ["gpu"],
            "{found}"
        );
    });
}

#[test]
fn checkpoints_that_retention_lets_go_are_marked() {
    let mut cluster = SampleCluster::new(4, 0);
    cluster.resume("saves", 2, &[10, 20, 30]);
    let (service, _feed, _) = cluster.service();
    block_on(async {
        let answer = get(&service, "/api/v1/jobs/saves/checkpoints").await.json();
        let items = answer["items"].as_array().expect("a list");
        let retained: Vec<(u64, bool)> = items
            .iter()
            .filter_map(|item| Some((item["step"].as_u64()?, item["retained"].as_bool()?)))
            .collect();
        assert_eq!(retained, [(30, true), (20, true), (10, false)], "{answer}");
    });
}

#[test]
fn a_document_is_sent_once_while_it_does_not_change() {
    let cluster = SampleCluster::new(4, 2);
    let (service, _feed, _) = cluster.service();
    block_on(async {
        let first = get(&service, "/api/v1/nodes").await;
        let tag = first.headers["etag"].to_str().expect("ASCII").to_owned();
        assert_eq!(first.headers["x-content-type-options"], "nosniff");
        let second = get_with(&service, "/api/v1/nodes", &[("if-none-match", &tag)])
            .await
            .expect("a URI");
        assert_eq!((second.status, second.body.len()), (StatusCode::NOT_MODIFIED, 0));
        let other = get_with(&service, "/api/v1/jobs", &[("if-none-match", &tag)])
            .await
            .expect("a URI");
        assert_eq!(other.status, StatusCode::OK);
        assert_eq!(get(&service, "/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(get(&service, "/healthz").await.status, StatusCode::OK);
    });
}

/// Every field of an answer is in the schema, and every answer meets the schema.
fn check_answer(document: &Value, path: &str, uri: &str, answer: &Answer) {
    let operation = &document["paths"][path]["get"]["responses"];
    let status = answer.status.as_u16();
    let media = answer
        .headers
        .get("content-type")
        .map(|media| media.to_str().expect("ASCII"));
    if answer.status == StatusCode::OK {
        let content = &operation["200"]["content"][media.expect("a type")]["schema"];
        assert!(content.is_object(), "{uri}: {media:?} is not declared");
        let found = differences(document, content, &answer.json());
        assert!(found.is_empty(), "{uri}: {found:?}");
        if let Some(fields) = answer.json().as_object().filter(|_| path != "/api/v1/openapi.json") {
            let declared: BTreeSet<&str> = field_names(document, content).into_iter().collect();
            let undeclared: Vec<&String> = fields.keys().filter(|name| !declared.contains(name.as_str())).collect();
            assert!(undeclared.is_empty(), "{uri}: {undeclared:?} are not declared");
        }
        return;
    }
    // /readyz is not ready in this sample.
    assert!((400..500).contains(&status) || path == "/readyz", "{uri}: {status}");
    assert_eq!(media, Some("application/problem+json"), "{uri}");
    let problem = &operation["default"]["content"]["application/problem+json"]["schema"];
    let found = differences(document, problem, &answer.json());
    assert!(found.is_empty(), "{uri}: {found:?}");
    assert_eq!(answer.json()["status"], status, "{uri}");
}

/// Values for a parameter: those that exist, those that are well-formed, and others.
fn values(state: &DecisionState, schema: &Value, name: &str) -> BoxedStrategy<String> {
    let mut good: Vec<String> = vec![
        "1".into(),
        "true".into(),
        "2026-11-24T10:00:00Z".into(),
        "hardware".into(),
    ];
    good.extend(
        [
            "gpu-fallen-off-bus",
            "hu-nsdi2024:node-failure",
            "0",
            "18446744073709551616",
        ]
        .map(str::to_owned),
    );
    match name {
        "job" | "name" | "node" => {
            good.extend(job_names(state).iter().map(ToString::to_string));
            good.extend(node_names(state).iter().map(ToString::to_string));
        }
        "id" => good.extend(state.cases().keys().map(ToString::to_string)),
        _ => {}
    }
    let words = schema["enum"].as_array().into_iter().flatten();
    good.extend(words.filter_map(Value::as_str).map(str::to_owned));
    let odd = [
        "",
        "\0",
        "..",
        "../../etc/passwd",
        "-1",
        "1e3",
        "9999-99-99T99:99:99Z",
        "%",
        "\u{202e}ü",
    ];
    let odd = select(odd.map(str::to_owned).to_vec());
    let long = (0_usize..3_000).prop_map(|length| "a".repeat(length));
    prop_oneof![6 => select(good), 2 => odd, 2 => any::<String>(), 1 => long].boxed()
}

/// Generates requests from the OpenAPI document: known and unknown parameters with good and bad values.
#[test]
fn generated_requests_are_answered_as_the_openapi_document_declares() {
    let cluster = SampleCluster::new(6, 4);
    let (service, _feed, _) = cluster.service();
    let document = block_on(get(&service, "/api/v1/openapi.json")).json();
    let paths = document["paths"].as_object().expect("paths");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    for (path, item) in paths {
        if path == "/api/v1/watch" {
            continue;
        }
        let parameters = item["get"]["parameters"].as_array().cloned().unwrap_or_default();
        let mut parts: Vec<BoxedStrategy<Option<(String, String, bool)>>> = Vec::new();
        for parameter in &parameters {
            let name = parameter["name"].as_str().expect("a name").to_owned();
            let is_path = parameter["in"] == "path";
            let value = values(&cluster.state, &parameter["schema"], &name);
            let named = value.prop_map(move |value| Some((name.clone(), value, is_path)));
            parts.push(if is_path {
                named.boxed()
            } else {
                prop_oneof![2 => Just(None), 1 => named].boxed()
            });
        }
        let unknown = any::<(String, String)>().prop_map(|(name, value)| Some((name, value, false)));
        parts.push(prop_oneof![6 => Just(None), 1 => unknown].boxed());
        let mut runner = TestRunner::new(Config::with_cases(60));
        let checked = runner.run(&parts, |chosen| {
            let mut uri = path.clone();
            let mut query = Vec::new();
            for (name, value, is_path) in chosen.into_iter().flatten() {
                if is_path {
                    uri = uri.replace(&format!("{{{name}}}"), &encode(&value));
                } else {
                    query.push(format!("{}={}", encode(&name), encode(&value)));
                }
            }
            let uri = if query.is_empty() {
                uri
            } else {
                format!("{uri}?{}", query.join("&"))
            };
            if let Some(answer) = runtime.block_on(get_with(&service, &uri, &[])) {
                check_answer(&document, path, &uri, &answer);
            }
            Ok(())
        });
        if let Err(problem) = checked {
            panic!("{path}: {problem}");
        }
    }
}
