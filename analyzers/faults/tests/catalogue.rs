//! The catalogue as a whole: every reference resolves, every class has an action.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rankguard_faults::{Catalogue, CodeKind, OUTSIDE_SCOPE, PRIMARY, SignatureMatcher, decode, explain, explain_class};
use rankguard_model::{ClassId, Role};

/// Classes of the labelled corpus (104).
const FINE: &str = "
    gpu-ecc-uncorrectable gpu-row-remap-pending gpu-row-remap-failure gpu-fallen-off-bus gpu-internal-fault
    gpu-gsp-timeout gpu-engine-exception gpu-thermal gpu-not-visible fabric-manager-not-ready cpu-hardware-error
    cpu-lockup host-memory-fault kernel-crash straggler ib-rdma-error nic-fault network-packet-error
    network-unreachable connection-refused connection-reset dns-failure tls-failure ssh-failure port-in-use
    clock-skew nccl-timeout nccl-system-error nccl-cuda-error nccl-invalid-usage nccl-no-interface
    nccl-net-plugin-error nccl-p2p-resources hccl-timeout collective-mismatch collective-argument-error
    rendezvous-failure remote-worker-lost hang-no-error hang-stalled-ranks cuda-oom cuda-illegal-memory-access
    cuda-launch-failure cuda-device-assert cuda-invalid-device-ordinal cuda-no-kernel-image cublas-failure
    cudnn-failure driver-version-mismatch library-incompatible library-missing environment-setup-error
    host-oom-kill host-oom-alloc container-oom-kill shm-exhausted too-many-open-files disk-full segfault
    mpi-ucx-segfault storage-io-error filesystem-hang filesystem-mount-failure race-on-shared-filesystem
    checkpoint-corrupt checkpoint-mismatch permission-denied user-lookup-failure container-runtime-error
    container-start-error k8s-image-pull k8s-unschedulable k8s-volume-unbound quota-exceeded slurm-time-limit
    slurm-node-fail job-cancelled preempted external-termination framework-bug dataloader-worker-crash
    config-error argparse-error import-error file-not-found attribute-error type-error key-error assertion-error
    not-implemented numerical-error autograd-error ddp-unused-parameters dtype-mismatch device-mismatch
    tensor-shape-mismatch uncaught-exception data-corrupt data-missing data-label-error bad-sample loss-nan
    grad-overflow-scale-floor none
";

/// Classes of the crosswalk to the literature (91).
const COARSE: &str = "
    gpu-ecc-uncorrectable gpu-ecc-contained gpu-row-remap-failure gpu-ecc-degrading gpu-fallen-off-bus
    gpu-unavailable gpu-internal-fault gpu-gsp-timeout gpu-driver-fault thermal-fault power-fault nvlink-error
    pcie-error pcie-link-degraded host-cpu-or-memory-error local-disk-fault node-crash node-damage
    silent-data-corruption straggler-or-slowdown lemon-node ib-link-down nic-link-flap nic-fault network-slow
    ethernet-fault connection-failed nccl-timeout nccl-remote-error rendezvous-failure filesystem-mount-missing
    filesystem-io-error object-storage-error disk-full checkpoint-write-failure checkpoint-corrupt
    checkpoint-or-model-incompatible data-loss platform-service-outage external-service-unavailable
    image-pull-failure container-start-failure control-plane-error platform-defect platform-regression maintenance
    resource-contention port-conflict unknown preempted time-limit user-cancelled killed-by-signal
    allocation-timeout quota-exceeded policy-violation invalid-job-spec user-misoperation cuda-oom host-oom-kill
    dataloader-killed cuda-error-unspecified cuda-illegal-memory-access cuda-version-mismatch library-incompatible
    framework-api-misuse tensor-shape-mismatch framework-crash job-hang loss-nan loss-spike python-syntax-error
    python-import-error shared-library-missing python-name-error python-type-error python-value-error
    python-key-error python-index-error python-attribute-error python-none-dereference python-zero-division
    python-not-implemented python-assertion-failed uncaught-exception argument-or-config-invalid subprocess-failed
    path-not-found permission-denied data-corrupt data-encoding-error
";

#[test]
fn the_builtin_files_are_consistent() {
    if let Err(error) = Catalogue::load() {
        panic!("{error}");
    }
}

#[test]
fn every_class_says_what_it_is_what_to_do_and_what_clears_it() {
    // RG-10
    for class in Catalogue::builtin().classes() {
        assert!(!class.definition.is_empty(), "{}: definition", class.id);
        assert!(!class.mitigation.advice.is_empty(), "{}: advice", class.id);
        assert!(!class.clears.is_empty(), "{}: clears", class.id);
        assert!(
            Catalogue::builtin().action(&class.mitigation.action).is_some(),
            "{}: action",
            class.id
        );
    }
}

#[test]
fn every_class_has_a_place_in_each_of_the_five_taxonomies() {
    for class in Catalogue::builtin().classes() {
        let places = Catalogue::builtin().taxonomies_of(&class.id);
        assert_eq!(places.len(), PRIMARY.len(), "{}", class.id);
        for taxonomy in PRIMARY {
            for category in &places[taxonomy] {
                assert!(
                    Catalogue::builtin().category_name(taxonomy, category).is_some(),
                    "{}: {category}",
                    class.id
                );
            }
        }
    }
}

#[test]
fn the_main_failures_have_the_places_a_reader_of_the_papers_expects() {
    let check = |class: &str, taxonomy: &str, first: &str| {
        let places = Catalogue::builtin().taxonomies_of(&ClassId::from(class));
        assert_eq!(places[taxonomy][0], first, "{class} in {taxonomy}");
    };
    check("gpu-fallen-off-bus", "gao-icse-seip2023", "gpu-unavailability");
    check("gpu-fallen-off-bus", "kokolis-hpca2025", "gpu-unavailable");
    check("gpu-fallen-off-bus", "jeon-atc2019", "cuda-failure");
    // Zhang et al. studied failures of programs; they have no hardware category.
    check("gpu-fallen-off-bus", "zhang-icse2020", OUTSIDE_SCOPE);
    check("host-oom-kill", "zhang-icse2020", "cpu-out-of-memory");
    check("host-oom-kill", "kokolis-hpca2025", "oom");
    check("node-agent-silent", "gao-icse-seip2023", "node-outage");
    check("node-agent-silent", "hu-nsdi2024", "node-failure");
    check("tensor-shape-mismatch", "zhang-icse2020", "tensor-mismatch");
    check("tensor-shape-mismatch", "kokolis-hpca2025", "user-program");
}

#[test]
fn an_unknown_number_still_has_advice() {
    // RG-10
    let id = ClassId::from("unknown-xid-199");
    assert!(!Catalogue::builtin().mitigation(&id).advice.is_empty());
    assert_eq!(Catalogue::builtin().taxonomies_of(&id).len(), 5);
    assert!(Catalogue::builtin().class(&ClassId::from("no-such-class")).is_none());
}

#[test]
fn clean_up_events_are_cascades() {
    // RG-7
    let catalogue = Catalogue::builtin();
    assert_eq!(catalogue.xids().get(45).unwrap().role, Role::Cascade);
    for class in [
        "nccl-timeout",
        "nccl-system-error",
        "remote-worker-lost",
        "connection-reset",
    ] {
        assert_eq!(
            catalogue.class(&ClassId::from(class)).unwrap().role,
            Role::Cascade,
            "{class}"
        );
    }
}

#[test]
fn explain_takes_a_class_a_number_or_a_line() {
    let catalogue = Catalogue::builtin();
    let matcher = SignatureMatcher::builtin();
    let by_number = explain(catalogue, &matcher, "XID 79");
    assert_eq!(by_number[0].class, ClassId::from("gpu-fallen-off-bus"));
    let places: BTreeSet<&str> = by_number[0]
        .places
        .iter()
        .map(|place| place.taxonomy.as_str())
        .collect();
    assert!(PRIMARY.iter().all(|taxonomy| places.contains(taxonomy)));
    assert!(
        places.contains("llama3-2024") || places.contains("infinitehbd-sigcomm2025"),
        "{places:?}"
    );
    assert_eq!(
        explain(catalogue, &matcher, "sxid 20034")[0].class,
        ClassId::from("nvswitch-error")
    );
    assert_eq!(
        explain(catalogue, &matcher, "xid 999")[0].class,
        ClassId::from("unknown-xid-999")
    );
    let by_class = explain_class(catalogue, &ClassId::from("cuda-oom")).unwrap();
    assert!(!by_class.recommended_by.is_empty());
    assert!(explain(catalogue, &matcher, "all is well").is_empty());
}

fn shared(path: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path);
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        // Written to the stream itself: the harness hides macro output of a passing test.
        let _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("SKIPPED: {} is not there\n", path.display()),
        );
    }
    text
}

#[test]
fn every_id_of_both_lists_is_a_class_of_the_one_tree() {
    let catalogue = Catalogue::builtin();
    assert_eq!(
        (FINE.split_whitespace().count(), COARSE.split_whitespace().count()),
        (104, 91)
    );
    for id in FINE.split_whitespace().chain(COARSE.split_whitespace()) {
        let class = catalogue.class(&ClassId::from(id)).unwrap_or_else(|| panic!("{id}"));
        assert!(
            class.id.as_str() == id || class.aliases.contains(&ClassId::from(id)),
            "{id}"
        );
    }
    for class in catalogue.classes() {
        let root = catalogue.root_of(&class.id).unwrap();
        assert!(root.parent.is_none(), "{}", class.id);
        if let Some(parent) = &class.parent {
            assert!(
                catalogue.children(parent).any(|child| child.id == class.id),
                "{}",
                class.id
            );
        }
    }
}

#[test]
fn leaves_stand_where_the_corpus_puts_them() {
    let Some(table) = shared("failure-logs/classes.md") else {
        return;
    };
    let catalogue = Catalogue::builtin();
    let mut seen = BTreeSet::new();
    for line in table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| class"))
    {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let id = ClassId::from(cells[1]);
        let layer = cells[2];
        let wider = cells[3];
        seen.insert(cells[1].to_owned());
        let class = catalogue.class(&id).unwrap();
        assert_eq!(class.layer, layer, "{id}");
        if wider != "-" {
            let wider = &catalogue.class(&ClassId::from(wider)).unwrap().id;
            let above = class.id == *wider || catalogue.ancestors(&id).any(|above| above.id == *wider);
            assert!(above, "{id} is not below {wider}");
        }
    }
    assert_eq!(seen, FINE.split_whitespace().map(str::to_owned).collect());
}

/// Classes that differ from the crosswalk of the literature; classes.toml gives the reason beside
/// each.
const DIFFER: [(&str, &str); 6] = [
    ("gpu-fallen-off-bus", "jeon-atc2019"),
    ("gpu-internal-fault", "jeon-atc2019"),
    ("gpu-gsp-timeout", "jeon-atc2019"),
    ("node-crash", "jeon-atc2019"),
    ("local-disk-fault", "jeon-atc2019"),
    ("none", ""),
];

#[test]
fn places_of_the_roots_are_those_of_the_crosswalk() {
    let Some(text) = shared("taxonomies/crosswalk.toml") else {
        return;
    };
    let crosswalk: toml::Table = toml::from_str(&text).unwrap();
    let catalogue = Catalogue::builtin();
    let mut ids = BTreeSet::new();
    for class in crosswalk["class"].as_array().unwrap() {
        let id = class["id"].as_str().unwrap();
        ids.insert(id);
        let found = catalogue.class(&ClassId::from(id)).unwrap();
        assert_eq!(found.mitigation.action, class["first_action"].as_str().unwrap(), "{id}");
        for taxonomy in catalogue.taxonomy_ids() {
            if DIFFER.contains(&(id, taxonomy)) {
                continue;
            }
            let wanted: Option<Vec<&str>> = class["map"].get(taxonomy).map(|places| {
                places
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(toml::Value::as_str)
                    .collect()
            });
            let places = catalogue.places_in(&found.id, taxonomy);
            match wanted {
                Some(wanted) => assert_eq!(places.unwrap(), &wanted, "{id} in {taxonomy}"),
                // Without a category of its own: that of a wider class, a domain, or none.
                None => assert!(
                    !PRIMARY.contains(&taxonomy) || !places.unwrap().is_empty(),
                    "{id} in {taxonomy}"
                ),
            }
        }
    }
    assert_eq!(ids, COARSE.split_whitespace().collect());
}

#[test]
fn every_taxonomy_is_there_with_its_names_definitions_and_figures() {
    let catalogue = Catalogue::builtin();
    assert_eq!(catalogue.taxonomies().count(), 20);
    for (id, taxonomy) in catalogue.taxonomy_ids().zip(catalogue.taxonomies()) {
        assert_eq!(id, taxonomy.id);
        assert!(taxonomy.citation.url.starts_with("https://"), "{id}");
        assert!(
            taxonomy
                .categories
                .iter()
                .all(|category| !category.definition.is_empty()),
            "{id}"
        );
    }
    for taxonomy in catalogue.taxonomies() {
        let Some(text) = shared(&format!("taxonomies/{}.toml", taxonomy.id)) else {
            return;
        };
        let original: toml::Table = toml::from_str(&text).unwrap();
        let categories = original["category"].as_array().unwrap();
        assert_eq!(categories.len(), taxonomy.categories.len(), "{}", taxonomy.id);
        for (category, ours) in categories.iter().zip(&taxonomy.categories) {
            let ours: BTreeMap<String, serde_json::Value> =
                serde_json::from_value(serde_json::to_value(ours).unwrap()).unwrap();
            for (key, value) in category.as_table().unwrap() {
                // The class of an XID is in the crosswalk.
                if key == "class" {
                    continue;
                }
                let found = ours
                    .get(key)
                    .or_else(|| ours.get("details").and_then(|details| details.get(key)));
                let wanted = serde_json::to_value(value).unwrap();
                assert_eq!(found, Some(&wanted), "{} {key}", taxonomy.id);
            }
        }
    }
}

#[test]
fn every_class_and_every_code_says_where_to_read() {
    let catalogue = Catalogue::builtin();
    for class in catalogue.classes() {
        assert!(!class.sources.is_empty(), "{}", class.id);
        for source in &class.sources {
            assert!(
                catalogue.source(source).unwrap().url.starts_with("https://"),
                "{source}"
            );
        }
    }
    for code in catalogue.xids().iter().chain(catalogue.sxids().iter()) {
        assert!(catalogue.source(&code.source).is_some(), "{}", code.number);
    }
}

#[test]
fn the_tables_hold_every_number_that_the_vendor_uses() {
    let catalogue = Catalogue::builtin();
    assert_eq!(
        (catalogue.xids().iter().count(), catalogue.sxids().iter().count()),
        (150, 92)
    );
    let unused = [
        5, 10, 15, 17, 23, 49, 50, 51, 52, 53, 55, 87, 90, 91, 111, 112, 113, 114, 115, 116, 117, 118, 138,
    ];
    for number in 1..=173 {
        assert_eq!(
            catalogue.xids().get(number).is_none(),
            unused.contains(&number),
            "{number}"
        );
    }
    assert_eq!(catalogue.xids().cleared_by(163), Some(162));
    assert_eq!(catalogue.sxids().cleared_by(10004), Some(10005));
    let Some(text) = shared("taxonomies/nvidia-xid-catalog.toml") else {
        return;
    };
    let original: toml::Table = toml::from_str(&text).unwrap();
    for row in original["category"].as_array().unwrap() {
        let immediate = row
            .get("immediate_action")
            .and_then(toml::Value::as_str)
            .unwrap_or_default();
        for number in row["xid"].as_array().unwrap() {
            let number = u32::try_from(number.as_integer().unwrap()).unwrap();
            let code = catalogue.xids().get(number).unwrap();
            assert!(
                code.vendor_action.starts_with(immediate),
                "{number}: {} {immediate}",
                code.vendor_action
            );
        }
    }
}

#[test]
fn a_catalogue_has_a_version_that_changes_with_what_it_says() {
    let builtin = Catalogue::builtin().version();
    assert_eq!(builtin.len(), 16);
    assert_eq!(Catalogue::with_files(&[]).unwrap().version(), builtin);
    let file = "[[source]]\nid = \"ours\"\ntitle = \"Our handbook\"\nurl = \"https://example.org\"\n";
    let ours = Catalogue::with_files(&[("a.toml", file)]).unwrap();
    assert_ne!(ours.version(), builtin);
    assert_eq!(
        Catalogue::with_files(&[("b.toml", file)]).unwrap().version(),
        ours.version()
    );
    assert_eq!(ours.source_title("ours"), Some("Our handbook"));
}

#[test]
fn a_page_shows_place_family_signatures_and_sources() {
    let catalogue = Catalogue::builtin();
    let matcher = SignatureMatcher::builtin();
    let page = &explain(catalogue, &matcher, "dns-failure")[0];
    assert_eq!(page.parent, Some(ClassId::from("ethernet-fault")));
    assert!(!page.signatures.is_empty() && !page.sources.is_empty() && !page.action_means.is_empty());
    let refused = &explain(catalogue, &matcher, "connection-refused")[0];
    assert!(
        refused.siblings.contains(&ClassId::from("connection-reset")),
        "{:?}",
        refused.siblings
    );
    let alias = &explain(catalogue, &matcher, "python-import-error")[0];
    assert_eq!(alias.class, ClassId::from("import-error"));
    let counted = &explain(catalogue, &matcher, "cuda-oom")[0];
    assert!(counted.places.iter().any(|place| !place.figures.is_empty()));
    let switch = &explain(catalogue, &matcher, "SXid 20034")[0];
    assert_eq!(switch.code.as_ref().unwrap().kind, "SXid");
}

#[test]
fn a_line_with_a_number_is_decoded() {
    let catalogue = Catalogue::builtin();
    let matcher = SignatureMatcher::builtin();
    let line = "NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)";
    let page = &explain(catalogue, &matcher, line)[0];
    let decoded = page.decoded.as_ref().unwrap();
    assert_eq!(decoded.fields["link"], "6");
    assert_eq!(page.code.as_ref().unwrap().mnemonic, "NVLINK_ERROR");
    let again = decode(catalogue.xids(), CodeKind::Xid, 74, line, None);
    assert_eq!(&again, decoded);
}
