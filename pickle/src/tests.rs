//! Tests of built values, refused opcodes and robustness.

use proptest::prelude::*;

use crate::opcode as op;
use crate::{Error, ObjectPolicy, ParseLimits, PickleTree, PickledValue, UnpickledValues, ValueId};

fn read<'a>(pickle: &'a [u8], limits: &ParseLimits) -> Result<UnpickledValues<'a>, Error> {
    crate::read(pickle, limits, ObjectPolicy::Refuse)
}

/// Formats a value as Python would print it, to a small depth.
fn show(tree: &PickleTree<'_>, id: ValueId, depth: usize) -> String {
    if depth == 0 {
        return "...".into();
    }
    let list = |items: &[ValueId]| {
        items
            .iter()
            .map(|item| show(tree, *item, depth - 1))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match tree.node(id) {
        PickledValue::None => "None".into(),
        PickledValue::Bool(value) => if *value { "True" } else { "False" }.into(),
        PickledValue::Int(value) => value.to_string(),
        PickledValue::Huge => "huge".into(),
        PickledValue::Float(value) => format!("{value:?}"),
        PickledValue::Text(_) => format!("{:?}", tree.text(id, 100).unwrap_or_default()),
        PickledValue::Bytes(_) => format!("b{:?}", tree.text(id, 100).unwrap_or_default()),
        PickledValue::List(items) => format!("[{}]", list(items)),
        PickledValue::Tuple(items) => format!("({})", list(items)),
        PickledValue::Set(items) => format!("{{{}}}", list(items)),
        PickledValue::Dict(flat) => format!("dict[{}]", list(flat)),
        PickledValue::Global { module, name } => {
            let part = |id| tree.text(id, 100).unwrap_or_default().into_owned();
            format!("<{} {}>", part(*module), part(*name))
        }
        PickledValue::Object {
            class,
            args,
            state,
            items,
            pairs,
            is_new,
        } => {
            let mut text = format!(
                "{}{}{}",
                if *is_new { "new " } else { "" },
                show(tree, *class, depth - 1),
                show(tree, *args, depth - 1)
            );
            for (word, part) in [("state", state), ("items", items), ("pairs", pairs)] {
                if !tree.is_none(*part) {
                    text += &format!(" {word} {}", show(tree, *part, depth - 1));
                }
            }
            text
        }
        PickledValue::Persistent(named) => format!("outside {}", show(tree, *named, depth - 1)),
    }
}

fn check(pickle: &[u8], shown: &str) {
    let read = read(pickle, &ParseLimits::default()).expect("a good pickle");
    assert_eq!(read.cut, None);
    assert_eq!(show(&read.tree, read.tree.root, 6), shown);
}

fn refused(pickle: &[u8]) -> Error {
    read(pickle, &ParseLimits::default()).expect_err("a bad pickle")
}

#[test]
fn each_protocol_builds_the_same_value() {
    // pickle.dumps({"a": [1, -2, 70000, True, None, 1.5], "b": ("x", "y")}, protocol=0 .. 5)
    let shown = r#"dict["a", [1, -2, 70000, True, None, 1.5], "b", ("x", "y")]"#;
    check(
        b"(dp0\nVa\np1\n(lp2\nI1\naI-2\naI70000\naI01\naNaF1.5\nasVb\np3\n(Vx\np4\nVy\np5\ntp6\ns.",
        shown,
    );
    check(
        b"}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffJp\x11\x01\x00I01\nNG?\xf8\x00\x00\x00\x00\x00\x00\
          eX\x01\x00\x00\x00bq\x03(X\x01\x00\x00\x00xq\x04X\x01\x00\x00\x00yq\x05tq\x06u.",
        shown,
    );
    check(
        b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffJp\x11\x01\x00\x88NG?\xf8\x00\x00\x00\x00\x00\x00\
          eX\x01\x00\x00\x00bq\x03X\x01\x00\x00\x00xq\x04X\x01\x00\x00\x00yq\x05\x86q\x06u.",
        shown,
    );
    check(
        b"\x80\x05\x95\x33\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffJp\x11\x01\x00\x88N\
          G?\xf8\x00\x00\x00\x00\x00\x00e\x8c\x01b\x94\x8c\x01x\x94\x8c\x01y\x94\x86\x94u.",
        shown,
    );
}

#[test]
fn long_numbers_keep_their_sign_or_say_that_they_are_huge() {
    check(
        b"\x80\x02\x8a\x08\x15\x4d\x4f\x06\xf0\xd6\x67\x18.",
        "1758610505897823509",
    );
    check(b"\x80\x02\x8a\x01\xff.", "-1");
    check(b"\x80\x02\x8a\x00.", "0");
    check(b"\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.", "huge");
    check(b"\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff.", "-1");
    check(b"L-12L\n.", "-12");
    check(b"L99999999999999999999999L\n.", "huge");
}

#[test]
fn text_of_the_oldest_protocol_loses_its_escapes() {
    check(b"S'a\\n\\x41\\'b'\n.", r#""a\nA'b""#);
    check(b"Vcaf\xe9 \\u20ac\n.", r#""café €""#);
    check(b"\x80\x02U\x03abc.", r#""abc""#);
    check(b"\x80\x04(K\x01K\x02\x91.", "{1, 2}");
}

#[test]
fn a_call_to_the_system_is_refused_by_name_and_place() {
    let error = refused(b"cos\nsystem\n(S'touch owned'\ntR.");
    let expected = Error::Refused {
        opcode: "GLOBAL",
        offset: 0,
        asks: Some("os system".into()),
    };
    assert_eq!(error, expected);
    assert_eq!(
        error.to_string(),
        "opcode GLOBAL at byte 0 refused (asks for os system): only plain values are read"
    );
    let error = refused(b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94.");
    let expected = Error::Refused {
        opcode: "STACK_GLOBAL",
        offset: 19,
        asks: Some("posix system".into()),
    };
    assert_eq!(error, expected);
    assert!(matches!(
        refused(b"(S'id'\nios\nsystem\n."),
        Error::Refused {
            opcode: "INST",
            offset: 7,
            ..
        }
    ));
    assert!(matches!(
        refused(b"}(X\x01\x00\x00\x00aNuR."),
        Error::Refused {
            opcode: "REDUCE",
            offset: 10,
            ..
        }
    ));
}

#[test]
fn every_opcode_that_could_do_something_is_refused() {
    assert_eq!(op::REFUSED.len(), 15);
    for code in op::REFUSED {
        let pickle = [b"\x80\x02}]N".as_slice(), &[*code], b"aaaa\nbbbb\n\x00\x00\x00\x00."].concat();
        match refused(&pickle) {
            Error::Refused { opcode, offset, .. } => {
                assert_eq!((Some(opcode), offset), (op::refused_name(*code), 5));
            }
            other => panic!("0x{code:02x}: {other}"),
        }
    }
    assert_eq!(refused(b"\xff."), Error::UnknownOpcode { byte: 0xff, offset: 0 });
}

#[test]
fn nonsense_is_told_with_its_place() {
    let malformed = |pickle: &[u8]| match refused(pickle) {
        Error::Malformed { opcode, offset, .. } => (opcode, offset),
        other => panic!("{other}"),
    };
    assert_eq!(malformed(b"."), ("STOP", 0));
    assert_eq!(malformed(b"(."), ("STOP", 1));
    assert_eq!(malformed(b"]e."), ("APPENDS", 1));
    assert_eq!(malformed(b"}Na."), ("APPEND", 2));
    assert_eq!(malformed(b"}(Nu."), ("SETITEMS", 3));
    assert_eq!(malformed(b"h\x07."), ("BINGET", 0));
    assert_eq!(malformed(b"\x80\x06."), ("PROTO", 0));
    assert_eq!(malformed(b"Ix\n."), ("INT", 0));
    assert_eq!(malformed(b"\x8b\xff\xff\xff\xff."), ("LONG4", 0));
}

#[test]
fn lengths_beyond_the_end_allocate_nothing() {
    for pickle in [
        &b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff."[..],
        b"X\xff\xff\xff\xff.",
        b"\x8b\xff\xff\xff\x7f.",
    ] {
        assert_eq!(refused(pickle), Error::Truncated { offset: pickle.len() });
    }
}

#[test]
fn a_thousand_fold_shared_value_is_one_value() {
    // Each level is a list of ten times the level below: 10^40 leaves in 1.3 kB.
    let mut pickle = b"\x80\x02]q\x00".to_vec();
    for level in 0..40u8 {
        pickle.push(b'0');
        pickle.extend([b']', b'q', level + 1, b'(']);
        for _ in 0..10 {
            pickle.extend([b'h', level]);
        }
        pickle.push(b'e');
    }
    pickle.push(b'.');
    let read = read(&pickle, &ParseLimits::default()).expect("a good pickle");
    assert_eq!(read.tree.count(), 3 + 41);
}

#[test]
fn a_deep_value_needs_no_deep_stack_to_build_or_drop() {
    let mut pickle = b"\x80\x02N".to_vec();
    pickle.extend(std::iter::repeat_n(op::TUPLE1, 2_000_000));
    pickle.push(b'.');
    let read = read(&pickle, &ParseLimits::default()).expect("a good pickle");
    assert_eq!(read.tree.count(), 3 + 2_000_000);
}

#[test]
fn a_list_within_itself_is_only_a_number() {
    check(b"]q\x00h\x00a.", "[[[[[[...]]]]]]");
}

#[test]
fn limits_hold() {
    let limits = ParseLimits {
        values: 10,
        depth: 3,
        memo: 2,
        ..ParseLimits::default()
    };
    let what = |pickle: &[u8]| match read(pickle, &limits) {
        Err(Error::Limit { what, offset, .. }) => (what, offset),
        other => panic!("{other:?}"),
    };
    assert_eq!(what(&[b'N'; 12]), ("values", 10));
    assert_eq!(
        what(b"Nq\x00h\x00h\x00h\x00h\x00h\x00h\x00h\x00h\x00h\x00h\x00."),
        ("values", 21)
    );
    assert_eq!(what(b"(((((N."), ("containers open at once", 3));
    assert_eq!(
        what(b"Nr\x00\x00\x00\xf0r\x01\x00\x00\xf0r\x02\x00\x00\xf0."),
        ("remembered values", 11)
    );
}

#[test]
fn what_stands_before_a_break_is_kept() {
    let whole = b"\x80\x02}q\x00(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00b](K\x02K\x03K\x04eu.";
    let read = read(&whole[..whole.len() - 5], &ParseLimits::default()).expect("what stands before the break");
    assert_eq!(read.cut, Some(whole.len() - 5));
    assert_eq!(show(&read.tree, read.tree.root, 6), r#"dict["a", 1, "b", [2, 3]]"#);
    assert_eq!(refused(b"\x80\x02}q\x00(X\x09"), Error::Truncated { offset: 8 });
}

fn described(pickle: &[u8]) -> String {
    let read = crate::read(pickle, &ParseLimits::default(), ObjectPolicy::Describe).expect("a good pickle");
    show(&read.tree, read.tree.root, 8)
}

#[test]
fn what_a_pickle_asks_for_is_told_and_not_done() {
    assert_eq!(
        described(b"cos\nsystem\n(S'touch owned'\ntR."),
        r#"<os system>("touch owned")"#
    );
    assert_eq!(
        described(b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94."),
        r#"<posix system>("id")"#
    );
    // collections.OrderedDict(a=1), an instance with fields, and a tensor's storage.
    assert_eq!(
        described(b"ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00aK\x01u."),
        r#"<collections OrderedDict>() pairs dict["a", 1]"#
    );
    assert_eq!(
        described(b"\x80\x02cm\nC\n)\x81}X\x01\x00\x00\x00aK\x01sb."),
        r#"new <m C>() state dict["a", 1]"#
    );
    assert_eq!(described(b"cm\nL\n)R(K\x01K\x02e."), "<m L>() items [1, 2]");
    assert_eq!(described(b"cm\nC\n)}\x92."), "new <m C>((), dict[])");
    assert_eq!(described(b"(K\x07im\nC\n."), "new <m C>(7)");
    assert_eq!(described(b"(cm\nC\nK\x07o."), "new <m C>(7)");
    assert_eq!(described(b"(X\x01\x00\x00\x000K\x02tQ."), r#"outside ("0", 2)"#);
    assert_eq!(described(b"Pname\n."), r#"outside "name""#);
    assert_eq!(described(b"C\x02\x00\xff."), "b\"\\0\u{fffd}\"");
}

#[test]
fn what_is_outside_of_the_file_is_refused_even_when_objects_are_told() {
    for code in [0x97, 0x98, 0x82, 0x83, 0x84] {
        let pickle = [b"]".as_slice(), &[code], b"\x01\x01\x01\x01."].concat();
        let error = crate::read(&pickle, &ParseLimits::default(), ObjectPolicy::Describe).expect_err("refused");
        assert!(matches!(error, Error::Refused { offset: 1, .. }), "{error}");
    }
    for (pickle, opcode) in [(&b"NNb."[..], "BUILD"), (b"(o.", "OBJ"), (b"NN\x93.", "STACK_GLOBAL")] {
        match crate::read(pickle, &ParseLimits::default(), ObjectPolicy::Describe) {
            Err(Error::Malformed { opcode: found, .. }) => assert_eq!(found, opcode),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn too_many_bytes_are_not_looked_at() {
    let limits = ParseLimits {
        bytes: 3,
        ..ParseLimits::default()
    };
    assert_eq!(
        read(b"NNN.", &limits).err(),
        Some(Error::TooLarge { bytes: 4, limit: 3 })
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let limits = ParseLimits { values: 200, ..ParseLimits::default() };
        let _ = read(&bytes, &limits);
        let _ = crate::read(&bytes, &limits, ObjectPolicy::Describe);
    }

    #[test]
    fn no_opcodes_make_it_panic(
        codes in proptest::collection::vec(proptest::sample::select(&b"()]}Ntlde.ausq\x00h\x00K\x07012\x85\x86\x87\x8f\x90\x91\x94I1\n"[..]), 0..400)
    ) {
        if let Ok(read) = read(&codes, &ParseLimits::default()) {
            prop_assert!(read.tree.count() <= codes.len() + 3);
            show(&read.tree, read.tree.root, 4);
        }
    }

    #[test]
    fn no_objects_make_it_panic(
        codes in proptest::collection::vec(proptest::sample::select(&b"()]}Neaussq\x00h\x00K\x0702\x85\x86\x90\x94ca\nRRb\x81\x92oiQP\x93"[..]), 0..400)
    ) {
        if let Ok(read) = crate::read(&codes, &ParseLimits::default(), ObjectPolicy::Describe) {
            prop_assert!(read.tree.count() <= 4 * codes.len() + 3);
            show(&read.tree, read.tree.root, 4);
        }
    }
}
