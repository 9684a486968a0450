//! Which request redeems: one method of two, one spelling, one version of HTTP, once.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;

use crate::raw::{Raw, head, once, put};
use crate::uploads::{Link, Uploads};

/// None of these targets redeems the link, and each is answered like a token that never was.
async fn all_not_found(up: &Uploads, targets: impl IntoIterator<Item = String>) {
    let not_found = up.not_found().await;
    for target in targets {
        for method in ["PUT", "POST"] {
            let sent = head(up.address, method, &target, &["Content-Length: 1"]) + "x";
            assert_eq!(once(up.address, sent).await, not_found, "{method} {target}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_01_an_empty_token_is_not_found_and_spends_nothing() {
    let up = Uploads::new().await;
    let link = up.link().await;
    all_not_found(
        &up,
        ["/transfers/upload/", "/transfers/upload", "/transfers/", "/transfers"].map(String::from),
    )
    .await;
    up.assert_unspent(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_02_tokens_of_another_length_or_alphabet_are_not_found() {
    let up = Uploads::new().await;
    let link = up.link().await;
    let of = |token: &str| format!("/transfers/upload/{token}");
    let mut targets = vec![of(&link.token[..42]), of(&format!("{}A", link.token)), of(&"A".repeat(10_000))];
    targets.extend([".", "~", "%", "+", "*", "'", "é"].map(|odd| of(&format!("{}{odd}", &link.token[..42]))));
    all_not_found(&up, targets).await;
    up.assert_unspent(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_03_only_the_exact_path_matches() {
    let up = Uploads::new().await;
    let link = up.link().await;
    let (path, token) = (&link.path, &link.token);
    let targets = [
        format!("{path}/x"),
        format!("{path}/"),
        format!("/{path}"),
        format!("/transfers//upload/{token}"),
        format!("/transfers/upload//{token}"),
        format!("/./transfers/upload/{token}"),
        format!("/transfers/./upload/{token}"),
        format!("/transfers/upload/./{token}"),
        format!("{path};a=b"),
        format!("{path}?x"),
        format!("{path}?"),
        format!("{path}#"),
        format!("{path}#x"),
        format!("{path}?x#y"),
        format!("{path}#y?x"),
        format!("{path}##"),
        format!("http://{}{path}#x", up.address),
        format!("/TRANSFERS/upload/{token}"),
        format!("/transfers/Upload/{token}"),
    ];
    all_not_found(&up, targets).await;
    up.assert_unspent(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_04_paths_that_climb_are_not_found_and_reach_nothing() {
    let up = Uploads::new().await;
    let link = up.link().await;
    let ways = ["../../mcp", "%2e%2e/%2e%2e/mcp", "%2E%2E%2F%2E%2E%2Fmcp", "..%2f..%2fmcp", "..%5c..%5cmcp"];
    let more = ["%252e%252e%252fmcp", "%c0%ae%c0%ae/mcp", "..;/..;/mcp", "..\\..\\mcp", "..//..//mcp"];
    let climbing = ways.iter().chain(&more).map(|way| format!("/transfers/upload/{way}"));
    let around =
        ["/transfers/../mcp", "/mcp/../transfers/upload/x", "/transfers/upload/../upload/"].map(String::from);
    let onto = ["/mcp/..", "/x/.."].map(|detour| format!("{detour}{}", link.path));
    all_not_found(&up, climbing.chain(around).chain(onto)).await;
    up.assert_unspent(&link).await;
    assert!(up.records("auth.failure").await.is_empty(), "nothing came as far as asking for a bearer");
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_05_encoded_tokens_are_not_found_and_not_spent() {
    let up = Uploads::new().await;
    let link = up.link().await;
    let encoded = |percent: &str, at: usize| {
        let (before, rest) = link.token.split_at(at);
        let (one, after) = rest.split_at(1);
        format!("/transfers/upload/{before}{percent}{:02X}{after}", one.as_bytes()[0])
    };
    let targets = [0, 20, 42].into_iter().flat_map(|at| ["%", "%25"].map(|percent| encoded(percent, at)));
    all_not_found(&up, targets).await;
    all_not_found(
        &up,
        [link.path.replace("upload", "%75pload"), link.path.replace("/upload/", "/upload%2F")],
    )
    .await;
    up.assert_unspent(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_06_a_token_has_one_spelling() {
    let up = Uploads::new().await;
    let link = up.link().await;
    let token = &link.token;
    let bytes = BASE64URL_NOPAD.decode(token.as_bytes()).unwrap();
    // 43 characters hold 258 bits of which 256 count: three other last characters decode to the same bytes elsewhere.
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let last = alphabet.find(&token[42..]).unwrap();
    assert_eq!(last % 4, 0);
    let mut others: Vec<String> =
        (last + 1..last + 4).map(|at| format!("{}{}", &token[..42], &alphabet[at..=at])).collect();
    others.extend([token.to_uppercase(), token.to_lowercase(), format!("{token}="), format!("{token}==")]);
    others.push(data_encoding::BASE64.encode(&bytes));
    others.push(data_encoding::HEXLOWER.encode(&bytes));
    let standard = token.replace('-', "+").replace('_', "/");
    others.extend((standard != *token).then_some(standard));
    all_not_found(&up, others.into_iter().map(|token| format!("/transfers/upload/{token}"))).await;
    up.assert_unspent(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_07_other_forms_of_a_request_are_taken_by_their_path_or_refused() {
    let up = Uploads::new().await;
    let not_found = up.not_found().await;
    let address = up.address;

    let link = up.link().await;
    let absolute = up.put(&format!("http://{address}{}", link.path), "absolute").await;
    assert_eq!(absolute.status, 200, "{absolute:?}");
    assert_eq!(std::fs::read(&link.file).unwrap(), b"absolute");

    let link = up.link().await;
    let Link { path, token, .. } = &link;
    assert_eq!(up.put(&format!("http://{address}/x{path}"), "x").await, not_found);
    assert_eq!(up.put(&format!("http://elsewhere.example{path}"), "x").await.status, 421);
    for target in ["*", &address.to_string(), token, &path[1..]] {
        for method in ["PUT", "CONNECT", "OPTIONS"] {
            let reply = once(address, head(address, method, target, &[])).await;
            assert!([400, 404, 421].contains(&reply.status), "{method} {target}: {reply:?}");
        }
    }
    for version in ["HTTP/1.0", "HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "HTTP/3"] {
        let sent = put(address, path, "old").replace("HTTP/1.1", version);
        let mut raw = Raw::open(address).await;
        raw.write(sent).await;
        // hyper closes on a version it does not know, some of them without a word.
        if let Some(reply) = raw.next(false).await {
            assert_eq!(reply.status, 400, "{version}: {reply:?}");
        }
        raw.closed().await;
    }
    let mut preface = Raw::open(address).await;
    preface.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    assert!(preface.next(false).await.is_none_or(|reply| reply.status == 400));
    preface.closed().await;
    up.assert_unspent(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_08_other_methods_are_405_alike_for_every_token_and_spend_nothing() {
    let up = Uploads::new().await;
    let (live, dead) = (up.link().await, up.link().await);
    up.assert_unspent(&dead).await;
    let absent = format!("/transfers/upload/{}", "A".repeat(43));
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PATCH", "DELETE", "PROPFIND", "put"] {
        let mut replies = Vec::new();
        for path in [&live.path, &dead.path, &absent, "/transfers/upload/", "/transfers/upload/x?y"] {
            let override_with = "X-HTTP-Method-Override: PUT";
            let sent = head(up.address, method, path, &["Content-Length: 1", override_with]) + "x";
            let mut raw = up.open().await;
            raw.write(sent).await;
            replies.push(raw.next(method == "HEAD").await.unwrap());
        }
        assert_eq!(replies[0].status, 405, "{method}");
        assert_eq!(replies[0].header("allow"), Some("PUT, POST"), "{method}");
        assert!(replies.iter().all(|reply| *reply == replies[0]), "{method}: {replies:?}");
    }
    up.assert_unspent(&live).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_09_a_preflight_from_a_web_page_is_granted_nothing() {
    let up = Uploads::new().await;
    let link = up.link().await;
    for origin in ["https://evil.example", "null", "http://localhost:6274"] {
        for method in ["OPTIONS", "PUT"] {
            let lines =
                [&format!("Origin: {origin}"), "Access-Control-Request-Method: PUT", "Content-Length: 0"];
            // A local page may be listed, and then its PUT would count: only its preflight is sent.
            if method == "PUT" && origin.contains("localhost") {
                continue;
            }
            let reply = once(up.address, head(up.address, method, &link.path, &lines)).await;
            assert!([403, 405].contains(&reply.status), "{origin}: {reply:?}");
            assert!(!reply.head.to_ascii_lowercase().contains("access-control-"), "{origin}: {reply:?}");
        }
    }
    up.assert_unspent(&link).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_11_of_two_pipelined_puts_the_first_redeems() {
    let up = Uploads::new().await;
    let link = up.link().await;
    let mut raw = up.open().await;
    raw.write(put(up.address, &link.path, "first") + &put(up.address, &link.path, "second")).await;
    assert_eq!(raw.reply().await.status, 200);
    assert_eq!(raw.reply().await, up.not_found().await);
    raw.closed().await;
    assert_eq!(std::fs::read(&link.file).unwrap(), b"first");
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_12_an_expired_link_is_not_found_and_says_expired_to_its_minter() {
    let up = Uploads::new().await;
    let link = up.link_with(serde_json::json!({"expires_in": 60})).await;
    assert_eq!(link.minted["expires_in"], 60);
    let expires = up.server.app.clock.monotonic() + Duration::from_secs(60);
    // What the sweep of a later minute does.
    up.server.app.transfers.as_ref().unwrap().links.sweep(expires);
    up.assert_spent(&link).await;
    assert_eq!(up.outcome(&link).await["state"], "expired");
    assert!(up.records("transfer.link_reuse").await.is_empty(), "it was never presented in time");
    let later = up.link().await;
    up.assert_unspent(&later).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_33_a_second_presentation_is_an_audited_alert() {
    let up = Uploads::new().await;
    let link = up.link().await;
    up.assert_unspent(&link).await;
    assert!(up.records("transfer.link_reuse").await.is_empty());
    assert_eq!(up.put(&link.path, "again").await, up.not_found().await);
    let alerts = up.records("transfer.link_reuse").await;
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!((&alerts[0]["link"], &alerts[0]["code"]), (&link.id.clone().into(), &"link_reuse".into()));
    assert_eq!(alerts[0]["peer"], "127.0.0.1");
    assert_eq!(alerts[0]["details"]["owner"], "agent");
    assert!(!alerts[0].to_string().contains(&link.token));
}

#[tokio::test(flavor = "multi_thread")]
async fn ul_35_answers_are_uncacheable_leak_no_referrer_and_no_token() {
    let up = Uploads::new().await;
    let link = up.link().await;
    let mut replies = Vec::new();
    replies.push(once(up.address, head(up.address, "GET", &link.path, &[])).await);
    replies.push(up.put(&link.path, "x").await);
    replies.push(up.put(&link.path, "x").await);
    let multipart = ["Content-Type: multipart/form-data; boundary=x", "Content-Length: 1"];
    replies.push(once(up.address, head(up.address, "PUT", &up.link().await.path, &multipart) + "x").await);
    let statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [405, 200, 404, 415]);
    for reply in replies {
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{reply:?}");
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"), "{reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/json"), "{reply:?}");
        for told in ["server", "date", "via", "x-powered-by", "location", "set-cookie"] {
            assert_eq!(reply.header(told), None, "{reply:?}");
        }
        assert!(!reply.head.contains(&link.token) && !reply.text().contains(&link.token), "{reply:?}");
    }
}

/// JSON is Unicode: a name of other bytes cannot be said, and nothing stands in for it.
#[tokio::test(flavor = "multi_thread")]
async fn dp_07_a_name_that_is_not_utf_8_is_refused_and_never_replaced() {
    let up = Uploads::new().await;
    let call = |dest: &[u8]| {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"proxmox_upload_link",
            "arguments":{"cluster":"alpha","vmid":200,"dest":"/root/@"},"_meta":{
            "io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        let (before, after) = text.split_once('@').unwrap();
        let body = [before.as_bytes(), dest, after.as_bytes()].concat();
        let lines = [
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            "Mcp-Protocol-Version: 2026-07-28",
            "Mcp-Method: tools/call",
            "Mcp-Name: proxmox_upload_link",
            &format!("Authorization: Bearer {}", up.stage.bearer("agent")),
            &format!("Content-Length: {}", body.len()),
        ];
        [head(up.address, "POST", "/mcp", &lines).into_bytes(), body].concat()
    };
    for dest in [&b"\xff"[..], b"\xc3\x28", b"caf\xe9", b"\xed\xa0\x80", br"\ud800", br"\udc00x"] {
        let reply = once(up.address, call(dest)).await;
        assert_eq!(reply.status, 400, "{dest:?}: {reply:?}");
        assert!(reply.text().contains("-32700"), "{dest:?}: {reply:?}");
    }
    let listed = up.agent.call("list_transfers", serde_json::json!({})).await.unwrap();
    assert_eq!(listed["total"], 0, "{listed}");
    // What can be said is taken as it is.
    let reply = once(up.address, call("caf\u{e9}".as_bytes())).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}
