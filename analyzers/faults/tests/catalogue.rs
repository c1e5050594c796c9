//! The catalogue as a whole: every reference leads somewhere, every class can be acted on.
#![allow(clippy::unwrap_used)]

use rankguard_faults::{Catalogue, Matcher, OUTSIDE_SCOPE, explain, explain_class};
use rankguard_model::{ClassId, Role};

const PRIMARY: [&str; 5] = [
    "zhang-icse2020",
    "gao-icse-seip2023",
    "jeon-atc2019",
    "hu-nsdi2024",
    "kokolis-hpca2025",
];

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
    // Zhang et al. studied failures of programs; they have no hardware.
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
    let (catalogue, matcher) = (Catalogue::builtin(), Matcher::builtin());
    let by_number = explain(catalogue, &matcher, "XID 79");
    assert_eq!(by_number[0].class, ClassId::from("gpu-fallen-off-bus"));
    assert_eq!(by_number[0].places.len(), 6);
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
