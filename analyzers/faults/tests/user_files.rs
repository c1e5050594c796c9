//! User files: accepted entries, and the report of each mistake.
use rankguard_faults::{Catalogue, SignatureMatcher, explain};
use rankguard_model::{ClassId, EvidenceSource};

/// Returns the mistakes of one file, one a line.
fn mistakes(text: &str) -> Vec<String> {
    match Catalogue::with_files(&[("ours.toml", text)]) {
        Ok(_) => Vec::new(),
        Err(error) => error.mistakes.iter().map(ToString::to_string).collect(),
    }
}

fn check(text: &str, expect: &[&str]) {
    assert_eq!(mistakes(text), expect, "{text}");
}

const CLASS: &str = r#"
[[class]]
id = "tape-robot-jam"
parent = "filesystem-io-error"
layer = "storage"
definition = "The tape robot holds a cartridge and does not let it go."
advice = "Open the door."
"#;

const SIGNATURE: &str = r#"
[[signature]]
id = "tape-robot-jam"
literals = ["robot jam"]
pattern = "robot jam in bay (?P<bay>[0-9]+)"
class = "tape-robot-jam"
confidence = 0.9
example = "tapectl: robot jam in bay 7"
"#;

const TAXONOMY: &str = r#"
schema = "failure-taxonomy/1"
id = "our-handbook"
title = "Handbook of our cluster"
short = "our handbook"
axis = "who repairs it"

[citation]
authors = ["operations"]
venue = "internal"
year = 2026
url = "https://example.org/handbook"

[population]
tickets = 30

[[sum]]
of = "count"
population = "tickets"

[[dimension]]
id = "hands"
name = "Needs hands"
definition = "Somebody must go there."

[[category]]
id = "swap"
name = "Swap a part"
dimension = "hands"
definition = "A part is replaced."
count = 20
classes = ["gpu-fallen-off-bus", "thermal-fault"]

[[category]]
id = "reseat"
name = "Re-seat a part"
dimension = "hands"
definition = "A part is pulled and pushed."
count = 10
unreachable = "decided at the rack"
"#;

#[test]
fn a_class_with_its_signature_is_matched_and_explained() {
    let text = format!("{CLASS}{SIGNATURE}");
    let catalogue = Catalogue::with_files(&[("ours.toml", &text)]).unwrap();
    let matcher = SignatureMatcher::new(&catalogue);
    let marks = matcher.marks(EvidenceSource::JobLog, "tapectl: robot jam in bay 12");
    assert_eq!(marks[0].class, ClassId::from("tape-robot-jam"));
    let page = &explain(&catalogue, &matcher, "tape-robot-jam")[0];
    // Action and categories come from the parent, the clearing condition from the layer.
    assert_eq!(page.action, "retry-with-backoff");
    assert!(page.clears.contains("same path"));
    assert!(page.places.iter().any(|place| place.taxonomy == "l4-fse2025"));
    assert!(Catalogue::builtin().class(&ClassId::from("tape-robot-jam")).is_none());
}

#[test]
fn a_taxonomy_file_places_classes_and_shows_in_explanations() {
    let catalogue = Catalogue::with_files(&[("handbook.toml", TAXONOMY)]).unwrap();
    assert_eq!(catalogue.taxonomy_ids().last(), Some("our-handbook"));
    assert_eq!(
        catalogue
            .places_in(&ClassId::from("gpu-thermal"), "our-handbook")
            .unwrap(),
        &["swap"]
    );
    assert_eq!(catalogue.places_in(&ClassId::from("loss-nan"), "our-handbook"), None);
    // The verdict of a case has them, too.
    let of = |class: &str| {
        catalogue
            .taxonomies_of(&ClassId::from(class))
            .get("our-handbook")
            .cloned()
    };
    assert!(of("gpu-thermal").is_some(), "{:?}", of("gpu-thermal"));
    assert_eq!(of("loss-nan"), None);
    let matcher = SignatureMatcher::new(&catalogue);
    let page = &explain(&catalogue, &matcher, "XID 79")[0];
    let place = page
        .places
        .iter()
        .find(|place| place.taxonomy == "our-handbook")
        .unwrap();
    assert_eq!(
        (place.name.as_str(), place.figures.as_str()),
        ("Swap a part", "count 20, 66.7 % of 30")
    );
}

#[test]
fn a_map_places_known_classes_and_their_cases() {
    let text = "[map.nvlink-error]\nc4-hpca2025 = [\"communication-hang\"]\n";
    let catalogue = Catalogue::with_files(&[("ours.toml", text)]).unwrap();
    let places = catalogue.places_in(&ClassId::from("nvswitch-error"), "c4-hpca2025");
    assert_eq!(places.unwrap(), &["communication-hang"]);
}

#[test]
fn codes_are_added_and_replaced() {
    let text = r#"
[[xid]]
number = 200
meaning = "a number of the next driver"
class = "gpu-internal-fault"
role = "root"
confidence = 0.7

[[xid]]
number = 79
replaces = 79
meaning = "lost"
class = "node-crash"
role = "root"
confidence = 0.5
"#;
    let catalogue = Catalogue::with_files(&[("ours.toml", text)]).unwrap();
    assert_eq!(
        catalogue.xids().get(200).unwrap().class,
        ClassId::from("gpu-internal-fault")
    );
    assert_eq!(catalogue.xids().get(79).unwrap().class, ClassId::from("node-crash"));
}

#[test]
fn a_replaced_class_keeps_its_cases() {
    let text = r#"
[[class]]
id = "nvlink-error"
replaces = "nvlink-error"
layer = "network"
definition = "Ours."
advice = "Ask the fabric team."
action = "contact-platform"
"#;
    let catalogue = Catalogue::with_files(&[("ours.toml", text)]).unwrap();
    assert_eq!(
        catalogue.class(&ClassId::from("nvlink-error")).unwrap().layer,
        "network"
    );
    assert_eq!(
        catalogue.mitigation(&ClassId::from("nvswitch-error")).action,
        "contact-platform"
    );
}

#[test]
fn text_that_is_no_toml_is_told_with_its_line() {
    let told = mistakes("[[class]]\nid = \n");
    assert!(told[0].starts_with("ours.toml:2: toml: "), "{told:?}");
    assert!(told[0].ends_with("; correct the TOML here"), "{told:?}");
}

#[test]
fn an_unknown_key_is_told_with_the_nearest_one() {
    check(
        &format!("{CLASS}defnition = \"twice\"\n"),
        &["ours.toml:8: defnition: no such key; did you mean \"definition\"?"],
    );
}

#[test]
fn an_unknown_kind_of_entry_is_told() {
    check(
        "[[clas]]\nid = \"x\"\n",
        &["ours.toml:1: clas: no such kind of entry; did you mean \"class\"?"],
    );
}

#[test]
fn a_missing_key_is_told() {
    check(
        "\n[[class]]\nid = \"x\"\nlayer = \"storage\"\ndefinition = \"x\"\n",
        &["ours.toml:2: advice: the key is missing; add advice = ..."],
    );
}

#[test]
fn a_value_of_the_wrong_kind_is_told() {
    let told = mistakes(&SIGNATURE.replace("0.9", "\"high\""));
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("ours.toml:7: confidence: invalid type: string \"high\""),
        "{told:?}"
    );
}

#[test]
fn a_second_entry_with_an_id_is_told_with_the_place_of_the_first() {
    check(
        &format!("{CLASS}{CLASS}"),
        &[
            "ours.toml:10: id: class tape-robot-jam stands at ours.toml:2 already; choose another id, or write replaces = \"tape-robot-jam\"",
        ],
    );
    let told = mistakes(&CLASS.replace("tape-robot-jam", "cuda-oom"));
    assert_eq!(
        told,
        [
            "ours.toml:3: id: class cuda-oom stands at the built-in classes.toml already; choose another id, or write replaces = \"cuda-oom\""
        ]
    );
}

#[test]
fn replacing_what_is_not_there_is_told() {
    check(
        &format!("{CLASS}replaces = \"tape-robot-jam\"\n"),
        &["ours.toml:8: replaces: there is no class tape-robot-jam to replace; remove replaces"],
    );
    check(
        &format!("{CLASS}replaces = \"cuda-oom\"\n"),
        &[
            "ours.toml:8: replaces: class tape-robot-jam cannot replace \"cuda-oom\"; an entry replaces the one with its own id",
        ],
    );
}

#[test]
fn an_unknown_parent_is_told() {
    check(
        &CLASS
            .replace("filesystem-io-error", "filesystem-io-eror")
            .replace("advice", "action = \"diagnose\"\nadvice"),
        &["ours.toml:4: parent: no class filesystem-io-eror; did you mean \"filesystem-io-error\"?"],
    );
}

#[test]
fn a_circle_of_parents_is_told() {
    let other = CLASS
        .replace("tape-robot-jam", "b")
        .replace("filesystem-io-error", "tape-robot-jam");
    let told = mistakes(&format!("{}{other}", CLASS.replace("filesystem-io-error", "b")));
    assert!(told.iter().any(|one| one.contains("parents form a circle")), "{told:?}");
}

#[test]
fn an_unknown_layer_action_or_source_is_told() {
    check(
        &CLASS.replace("\"storage\"", "\"storrage\""),
        &["ours.toml:5: layer: no layer \"storrage\"; did you mean \"storage\"?"],
    );
    check(
        &format!("{CLASS}action = \"reboot-nod\"\nrecommended_by = [\"hu-nsdi2025\"]\n"),
        &[
            "ours.toml:8: action: no action \"reboot-nod\"; did you mean \"reboot-node\"?",
            "ours.toml:9: recommended_by: no source \"hu-nsdi2025\"; did you mean \"hu-nsdi2024\"?",
        ],
    );
    let rootless = CLASS.replace("parent = \"filesystem-io-error\"\n", "");
    check(
        &rootless,
        &["ours.toml:2: action: tape-robot-jam has no action, nor has a wider class; add action = ID of an action"],
    );
}

#[test]
fn an_unknown_taxonomy_or_category_is_told() {
    check(
        &format!("{CLASS}map = {{ hu-nsdi2042 = [\"x\"], hu-nsdi2024 = [\"node-failur\"], jeon-atc2019 = [] }}\n"),
        &[
            "ours.toml:8: map: hu-nsdi2024 has no category \"node-failur\"; did you mean \"node-failure\"?",
            "ours.toml:8: map: no taxonomy \"hu-nsdi2042\"; did you mean \"hu-nsdi2024\"?",
            "ours.toml:8: map: an empty list for jeon-atc2019; leave the taxonomy out",
        ],
    );
    check(
        "[map.gpu-thermla]\nhu-nsdi2024 = [\"node-failure\"]\n",
        &["ours.toml:1: map: no class gpu-thermla; did you mean \"gpu-thermal\"?"],
    );
}

#[test]
fn an_alias_that_is_taken_is_told() {
    check(
        &format!("{CLASS}aliases = [\"cuda-oom\", \"thermal-fault\"]\n"),
        &[
            "ours.toml:8: aliases: cuda-oom is a class of its own; an alias must be an id that nothing has",
            "ours.toml:8: aliases: thermal-fault is an alias of gpu-thermal already; leave it to one of them",
        ],
    );
}

#[test]
fn a_signature_that_cannot_work_is_told() {
    let with = |from: &str, to: &str| format!("{CLASS}{}", SIGNATURE.replace(from, to));
    check(
        &with("(?P<bay>[0-9]+)", "(?P<bay>[0-9]+"),
        &[
            "ours.toml:12: pattern: not a regular expression: unclosed group; write it as the regex crate takes it: no look-around, no back-references",
        ],
    );
    check(
        &with("bay 7", "bay seven"),
        &[
            "ours.toml:15: example: the pattern of tape-robot-jam does not match its example; correct the one or the other",
        ],
    );
    check(
        &with("[\"robot jam\"]", "[\"robot stuck\"]"),
        &[
            "ours.toml:11: literals: no literal of tape-robot-jam occurs in its example, so that it would never be tried; name a text that the example holds",
        ],
    );
    check(
        &with("[\"robot jam\"]", "[]"),
        &[
            "ours.toml:11: literals: tape-robot-jam has no literal; name a text that occurs in every line it matches",
            "ours.toml:11: literals: no literal of tape-robot-jam occurs in its example, so that it would never be tried; name a text that the example holds",
        ],
    );
    check(
        &with("[\"robot jam\"]", "[\"ro\", \"robot jam\"]"),
        &["ours.toml:11: literals: \"ro\" is too short for the prefilter; give at least 3 bytes"],
    );
    check(
        &with("0.9", "9.0"),
        &["ours.toml:14: confidence: 9 is beyond 0 to 1; 1 is certain, 0.5 a generic message"],
    );
    check(
        &with("class = \"tape-robot-jam\"", "class = \"tape-robot-jamm\""),
        &["ours.toml:13: class: no class tape-robot-jamm; did you mean \"tape-robot-jam\"?"],
    );
    check(
        &with("confidence", "unless = \"bay 7\"\nconfidence"),
        &["ours.toml:14: unless: unless takes the example of tape-robot-jam away; narrow it"],
    );
}

#[test]
fn a_code_that_is_taken_or_has_no_number_is_told() {
    let code = "[[xid]]\nnumber = 79\nmeaning = \"x\"\nclass = \"gpu-thermla\"\nrole = \"root\"\nconfidence = 2.0\nsource = \"nowhere at all\"\n";
    check(
        code,
        &[
            "ours.toml:2: number: xid 79 stands at the built-in xids.toml already; choose another id, or write replaces = \"79\"",
        ],
    );
    check(
        &code.replace("79", "279"),
        &[
            "ours.toml:4: class: no class gpu-thermla; did you mean \"gpu-thermal\"?",
            "ours.toml:6: confidence: 2 is beyond 0 to 1; 1 is certain, 0.5 a generic message",
            "ours.toml:7: source: no source \"nowhere at all\"; name a known source, or add a [[source]] with title and url",
        ],
    );
    let nameless = "[[sxid]]\nmeaning = \"x\"\nclass = \"gpu-thermal\"\nrole = \"root\"\nconfidence = 0.5\n";
    check(
        nameless,
        &["ours.toml:1: number: the sxid has no number; add number = N, or numbers = [N, ...]"],
    );
}

#[test]
fn a_taxonomy_that_does_not_hold_together_is_told() {
    check(
        &TAXONOMY.replace("count = 10", "count = 11"),
        &[
            "ours.toml:18: of: \"count\" of 2 categories adds up to 31.00, not 30; correct the figures, or say in within how far rounding goes",
        ],
    );
    check(
        &TAXONOMY.replace("id = \"reseat\"", "id = \"swap\""),
        &["ours.toml:35: id: \"swap\" stands twice in our-handbook; give each dimension and category an id of its own"],
    );
    check(
        &TAXONOMY.replacen("dimension = \"hands\"", "dimension = \"hand\"", 1),
        &["ours.toml:29: dimension: our-handbook has no dimension \"hand\"; did you mean \"hands\"?"],
    );
    check(
        &TAXONOMY.replace("unreachable = \"decided at the rack\"\n", ""),
        &[
            "ours.toml:34: category: no class leads to reseat of our-handbook; name its classes = [...], or say unreachable = \"why\"",
        ],
    );
    check(
        &TAXONOMY.replace("\"thermal-fault\"", "\"thermal-faultt\""),
        &["ours.toml:32: classes: no class thermal-faultt; did you mean \"thermal-fault\"?"],
    );
    check(
        &TAXONOMY.replace("\"our-handbook\"", "\"hu-nsdi2024\""),
        &[
            "ours.toml:3: id: taxonomy hu-nsdi2024 is built in already; choose another id, or write replaces = \"hu-nsdi2024\"",
        ],
    );
    check(
        &TAXONOMY.replace("failure-taxonomy/1", "failure-taxonomy/9"),
        &["ours.toml:2: schema: not a form that this version reads; write schema = \"failure-taxonomy/1\""],
    );
    check(
        &TAXONOMY.replace("population = \"tickets\"", "population = \"ticket\""),
        &[
            "ours.toml:19: population: no total is given; give total = NUMBER, or population = KEY of a number in [population]",
        ],
    );
}

#[test]
fn mistakes_of_all_files_come_at_once() {
    let error =
        Catalogue::with_files(&[("a.toml", "[[clas]]\n"), ("b.toml", "x = 1\n"), ("c.toml", CLASS)]).unwrap_err();
    let files: Vec<&str> = error.mistakes.iter().map(|mistake| mistake.file.as_str()).collect();
    assert_eq!(files, ["a.toml", "b.toml"]);
    assert_eq!(error.to_string().lines().count(), 2);
}

#[test]
fn a_file_that_is_no_catalogue_is_refused_whole() {
    let huge = "#".repeat((4 << 20) + 1);
    assert_eq!(mistakes(&huge).len(), 1);
    let many = "a.b = 1\n".to_owned() + &(0..5000).map(|i| format!("key{i} = 1\n")).collect::<String>();
    assert_eq!(mistakes(&many).len(), 101);
}

mod random {
    use proptest::prelude::*;

    use super::{CLASS, SIGNATURE, TAXONOMY, mistakes};

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("\"x\"".to_owned()),
            Just("[\"gpu-thermal\"]".to_owned()),
            Just("[]".to_owned()),
            Just("{ a = [1, \"b\"] }".to_owned()),
            Just("1979-05-27".to_owned()),
            Just("nan".to_owned()),
            Just("0xffff_ffff_ffff_ffff_f".to_owned()),
            any::<i64>().prop_map(|number| number.to_string()),
            "\"[(?a-z|*]{0,12}\"",
        ]
    }

    fn key() -> impl Strategy<Value = String> {
        prop_oneof![
            prop::sample::select(vec![
                "id",
                "parent",
                "layer",
                "map",
                "aliases",
                "numbers",
                "mnemonics",
                "pattern",
                "literals",
                "class",
                "classes",
                "replaces",
                "schema",
                "sum",
                "category",
                "citation",
                "escalate",
                "confidence",
                "total",
                "population",
                "clears",
            ])
            .prop_map(str::to_owned),
            "[a-z]{1,8}",
        ]
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC{0,300}") {
            mistakes(&text);
        }

        #[test]
        fn any_entries_are_read_without_a_panic(
            entries in prop::collection::vec(
                (prop::sample::select(vec!["class", "signature", "xid", "sxid", "taxonomy", "map", "source", "action", "clears"]),
                 any::<bool>(),
                 prop::collection::btree_map(key(), value(), 0..6)),
                0..5,
            ),
        ) {
            let mut text = String::new();
            for (kind, list, keys) in entries {
                text.push_str(&if list { format!("[[{kind}]]\n") } else { format!("[{kind}.x]\n") });
                for (key, value) in keys {
                    text.push_str(&format!("{key} = {value}\n"));
                }
            }
            let told = mistakes(&text);
            for one in &told {
                prop_assert!(one.starts_with("ours.toml:"), "{one}");
            }
        }

        #[test]
        fn a_sound_file_with_a_changed_line_never_panics(at in 0_usize..60, key in key(), value in value()) {
            for sound in [format!("{CLASS}{SIGNATURE}"), TAXONOMY.to_owned()] {
                let mut lines: Vec<&str> = sound.lines().collect();
                let changed = format!("{key} = {value}");
                let at = at % lines.len();
                lines[at] = &changed;
                mistakes(&lines.join("\n"));
            }
        }
    }
}

#[test]
fn an_example_that_the_scanner_leaves_out_is_told() {
    let text = SIGNATURE
        .replace("tape-robot-jam\"\nconf", "filesystem-io-error\"\nconf")
        .replace("robot jam in bay", "(?i)robot jam in bank")
        .replace("(?P<bay>[0-9]+)", "[0-9]+")
        // Its literal is in every log, so the scanner uses the pattern.
        .replace("[\"robot jam\"]", "[\" in \"]")
        .replace("tapectl: (?i)robot jam in bank", "tapectl: robot jam in ban\u{212a}");
    check(
        &text,
        &[
            "ours.toml:8: example: the scanner does not find the example of tape-robot-jam; keep to letters and digits of ASCII, no control characters and 16384 bytes",
        ],
    );
}
