use super::{MaskResult, ShapeLimits, mask};

fn check(line: &str, expect: &str) {
    let mut shape = Vec::new();
    let masked = mask(line.as_bytes(), ShapeLimits { tokens: 64, bytes: 512 }, &mut shape);
    assert_eq!(
        String::from_utf8(shape).expect("a shape of text is text"),
        expect,
        "{line}"
    );
    assert_eq!(
        masked,
        MaskResult {
            tokens: expect.split(' ').filter(|token| !token.is_empty()).count(),
            cut: false
        }
    );
}

#[test]
fn numbers_of_every_kind() {
    check("loss -0.25 lr 3.0e-4 grad +1e5", "loss <*> lr <*> grad <*>");
    check("addr 0x7f3a00 size=1,024 (50%)", "addr <*> size=<*> (<*>%)");
    check("7 8 9 x 10: 11, (12) 13", "<*> x <*>: <*>, (<*>) <*>");
    check("sha e3b0c44298fc1c149afbf4c8996fb924 deadbeef0", "sha <*>");
    check(
        "step 12/100 took 3.5s, 12 ms. 4 KB, free",
        "step <*> took <*>, <*>. <*>, free",
    );
}

#[test]
fn moments_and_addresses() {
    check("2026-01-02T03:04:05.678Z up", "<*> up");
    check("Jan  2 03:04:05 node-7 kernel: up", "<*> node-<*> kernel: up");
    check("[Fri Jan 02 03:04:05.123456 2026] up", "[<*> <*> <*>] up");
    check("peer 10.0.0.1:29500 is /10.0.0.2:80", "peer <*> is <*>");
    check("fe80::1ff:fe23 aa:bb:cc:dd:ee:0f 0000:3b:00.0", "<*>");
    check("id 550e8400-e29b-41d4-a716-446655440000, ok", "id <*>, ok");
    check("plug:7bfdea43-bddd-4c05-bcbf-82c3adb4719f!", "plug:<*>!");
    check("dsl-12.example.co.uk and a.b.example", "<*> and a.b.example");
}

#[test]
fn names_keep_what_they_say_and_lose_their_number() {
    check(
        "[rank3]: mlx5_0 eth1 cuda:0 fp16 x86_64",
        "[rank<*>]: mlx<*> eth<*> cuda:<*> fp<*> <*>",
    );
    check("[default7]: blk_-123 blk_456", "[default<*>]: blk_<*>");
    check("E0102 utf8 H100 NaN nan inf", "<*> utf<*> <*> NaN nan inf");
}

#[test]
fn paths_and_addresses_with_queries() {
    check(
        "File \"/opt/a/train.py\", line 12, in run",
        "File \"<*>\", line <*>, in run",
    );
    check(
        "open ./x/y: and/or I/O s3://b/c?x=1&y=2 end",
        "open <*>: and/or I/O <*> end",
    );
    check("GET /v2/a?all=True&host=b HTTP/1.1", "GET <*> HTTP/<*>");
}

#[test]
fn long_things_are_values() {
    let quoted = "q".repeat(super::QUOTE_LIMIT + 1);
    check(&format!("said \"{quoted}\" twice"), "said \"<*>\" twice");
    check(
        &format!("said \"{}\" twice", &quoted[2..40]),
        &format!("said \"{}\" twice", &quoted[2..40]),
    );
    check(&format!("word {}z", "y".repeat(super::WORD_LIMIT)), "word <*>");
    check("it's the worker's \"fault\"", "it's the worker's \"fault\"");
}

#[test]
fn lists_bars_and_rulers_of_any_length_have_one_shape() {
    check("ranks [0, 1, 2, 3, 4] lost", "ranks [<*>, <*>, <*>] lost");
    check("ranks [0, 1, 2] lost", "ranks [<*>, <*>, <*>] lost");
    check("========== x ---------- ~~~~^^^^^", "=== x --- ~~~^^^");
    check(
        " 45%|████▌     | 45/100 [00:10<00:12, 4.5it/s]",
        "<*>%| | <*> [<*><<*>, <*>/s]",
    );
    check("a — b … “c”", "a — b … “c”");
}

#[test]
fn escapes_and_control_bytes_are_spaces() {
    check("\u{1b}[1;31merror\u{1b}[0m\tin\u{0} it\r", "error in it");
    check("\u{1b}[é up", "é up");
    check(" \t ", "");
    check("", "");
    check("\u{1b}", "");
}

#[test]
fn what_the_tree_writes_cannot_come_from_a_line() {
    check("a <+> b <!> c <*> d", "a <*> b <*> c <*> d");
}

#[test]
fn bounds_cut_at_whole_tokens_and_whole_characters() {
    let cut = |line: &str, tokens, bytes| {
        let mut shape = Vec::new();
        let masked = mask(line.as_bytes(), ShapeLimits { tokens, bytes }, &mut shape);
        (
            String::from_utf8(shape).expect("a shape of text is text"),
            masked.tokens,
            masked.cut,
        )
    };
    assert_eq!(cut("aa bb cc", 2, 100), ("aa bb".to_owned(), 2, true));
    assert_eq!(cut("aa bb ", 2, 100), ("aa bb".to_owned(), 2, false));
    assert_eq!(cut("aa bb cc", 9, 6), ("aa bb".to_owned(), 2, true));
    assert_eq!(cut("aa bb cc dd", 3, 6), ("aa bb".to_owned(), 2, true));
    assert_eq!(cut("1 aa 2 bb 3 cc", 5, 9), ("<*> aa".to_owned(), 2, true));
    assert_eq!(cut("éééé", 9, 5), ("éé".to_owned(), 1, true));
}
