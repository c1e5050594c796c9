//! Files of the web console: headers, cache, access, and rules for their content.

use std::collections::BTreeSet;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::{Request, StatusCode};
use rankguard_api::console_paths;

use crate::common::{SampleCluster, get, get_with, local};

/// Largest size of all files, bytes.
const BYTES_MAX: usize = 300_000;
/// Words by which a script turns text into markup or code, and attributes with code.
const REFUSED: [&str; 12] = [
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "createContextualFragment",
    "DOMParser",
    "setHTMLUnsafe",
    "eval(",
    "new Function",
    "javascript:",
    "cssText",
    "import(",
];

async fn file(path: &str) -> (String, String) {
    let (service, _feed, _) = SampleCluster::empty().service();
    let answer = get(&service, path).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}");
    let media = answer.headers["content-type"].to_str().expect("ASCII").to_owned();
    (media, String::from_utf8(answer.body.to_vec()).expect("UTF-8"))
}

#[tokio::test]
async fn files_have_their_type_a_tag_and_a_policy() {
    let (service, _feed, _) = SampleCluster::new(4, 0).service();
    let mut bytes = 0;
    for path in console_paths() {
        let answer = get(&service, &path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        bytes += answer.body.len();
        let media = answer.headers["content-type"].to_str().expect("ASCII");
        let wanted = match path.rsplit('.').next() {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!(media, wanted, "{path}");
        let policy = answer.headers["content-security-policy"].to_str().expect("ASCII");
        let parts: BTreeSet<&str> = policy.split(';').map(str::trim).collect();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(parts.contains(part), "{path}: {part} is missing in {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers["referrer-policy"], "no-referrer");
        let tag = answer.headers["etag"].to_str().expect("ASCII").to_owned();
        let again = get_with(&service, &path, &[("if-none-match", &tag)])
            .await
            .expect("a URI");
        assert_eq!(
            (again.status, again.body.len()),
            (StatusCode::NOT_MODIFIED, 0),
            "{path}"
        );
    }
    assert!(bytes < BYTES_MAX, "{bytes} bytes");
    // An answer of the API is no page: nothing may be loaded for it.
    let answer = get(&service, "/api/v1/nodes").await;
    assert_eq!(answer.headers["content-security-policy"], "default-src 'none'");
}

#[tokio::test]
async fn the_entry_leads_to_the_page_and_other_paths_do_not_exist() {
    let (service, _feed, _) = SampleCluster::empty().service();
    for path in ["/", "/console"] {
        let answer = get(&service, path).await;
        assert_eq!(
            (answer.status, answer.headers["location"].to_str().expect("ASCII")),
            (StatusCode::FOUND, "/console/"),
            "{path}"
        );
    }
    for path in [
        "/console/index.html",
        "/console/none.js",
        "/console/a/b",
        "/console//",
        "/console/%2e%2e",
    ] {
        let answer = get(&service, path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(answer.headers["content-type"], "application/problem+json", "{path}");
    }
    // Without TLS a page of another name does not reach the files (DNS rebinding).
    let foreign = Request::builder().uri("/console/").header("host", "evil.example");
    let foreign = foreign.body(Empty::<Bytes>::new()).expect("a request");
    let answer = service.handle(foreign, &local()).await;
    assert_eq!(answer.status(), StatusCode::MISDIRECTED_REQUEST);
}

/// No file makes markup or code of text, and none has code or style in attributes, which the policy would refuse.
#[tokio::test]
async fn files_make_no_markup_of_text_and_load_nothing_foreign() {
    let paths: Vec<String> = console_paths().collect();
    for path in &paths {
        let (media, text) = file(path).await;
        for word in REFUSED {
            assert!(!text.contains(word), "{path} has {word}");
        }
        let namespace = "http://www.w3.org/2000/svg";
        let without_names = text.replace(namespace, "");
        assert!(
            !without_names.contains("http://") && !without_names.contains("https://"),
            "{path} names another host"
        );
        if media.starts_with("text/html") {
            let tags = text.split('<').skip(1).filter_map(|tag| tag.split('>').next());
            for tag in tags {
                let has_code = tag
                    .split_whitespace()
                    .skip(1)
                    .any(|word| word.starts_with("on") || word.starts_with("style="));
                assert!(!has_code, "{tag}");
                assert!(!tag.starts_with("style"), "{tag}");
                assert!(!tag.starts_with("script") || tag.contains(" src="), "{tag}");
            }
        }
        // Every module, style and picture that a file loads is one of the files.
        let quoted = text.split('"').skip(1).step_by(2);
        let names = quoted.filter(|name| name.ends_with(".js") || name.ends_with(".css") || name.ends_with(".svg"));
        for name in names {
            let wanted = format!("/console/{}", name.trim_start_matches("./"));
            assert!(paths.contains(&wanted), "{path} loads {name}");
        }
    }
}
