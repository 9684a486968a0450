use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A resolver that answers what it is told and counts the questions.
struct Fake {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl Fake {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |list: &&[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect();
        Arc::new(Self {
            answers: Mutex::new(answers.iter().map(parse).collect()),
            asked: AtomicUsize::new(0),
        })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Lookup for Fake {
    fn lookup<'a>(&'a self, _host: &'a str) -> LookupFuture<'a> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        Box::pin(async move { Ok(answer) })
    }
}

/// A web server that answers every request with the next of these texts, and keeps what it was asked.
struct Web {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Web {
    async fn start(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                let mut buffer = [0; 4096];
                // 22 opens a TLS handshake, which has no such end.
                while !head.windows(4).any(|w| w == b"\r\n\r\n") && head.first() != Some(&22) {
                    let read = stream.read(&mut buffer).await.unwrap_or(0);
                    if read == 0 {
                        break;
                    }
                    head.extend_from_slice(&buffer[..read]);
                }
                seen.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
                let _gone = stream.write_all(&answer).await;
                let _gone = stream.shutdown().await;
            }
        });
        Self { address, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Rules under which this server can be reached although it is on loopback.
    fn rules(&self) -> Rules {
        Rules { allow: vec![self.address], ports: vec![80, 443], ..Rules::default() }
    }
}

fn fetcher(lookup: Arc<Fake>) -> Fetcher {
    Fetcher::new(lookup, rustls::RootCertStore::empty()).unwrap()
}

fn nobody() -> Arc<Fake> {
    Fake::new(&[&[]])
}

async fn fetch(web: &Web, path: &str) -> Result<Fetched, FetchError> {
    fetcher(nobody()).fetch(&web.url(path), &web.rules(), &Never::default(), 1000).await
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: \"v1\"\r\n\r\n{body}", body.len()).into_bytes()
}

fn to(location: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n")
        .into_bytes()
}

#[tokio::test]
async fn fu_15_a_file_comes_with_name_and_tag_and_no_credential_is_ever_sent() {
    let web = Web::start(vec![to("/x/file.bin?secret=1"), ok("hello")]).await;
    let fetched = fetch(&web, "/start").await.unwrap();
    assert_eq!((fetched.length, fetched.host.as_str()), (Some(5), "127.0.0.1"));
    assert_eq!((fetched.name.as_deref(), fetched.etag.as_deref()), (Some("file.bin"), Some("\"v1\"")));
    assert_eq!(fetched.body.collect().await.unwrap().to_bytes(), "hello");
    for request in web.asked.lock().unwrap().iter() {
        let lower = request.to_lowercase();
        assert!(lower.contains("accept-encoding: identity"), "{request}");
        for credential in ["cookie", "authorization", "proxy-"] {
            assert!(!lower.contains(credential), "{request}");
        }
    }
}

// D19: there is one request a hop, and no later one that could ask anew.
#[tokio::test]
async fn d01_fu_06_a_name_is_looked_up_once_and_the_vetted_address_is_dialled() {
    let web = Web::start(vec![ok("x")]).await;
    // A second question would get the metadata service.
    let lookup = Fake::new(&[&["127.0.0.1"], &["169.254.169.254"]]);
    let url = format!("http://files.example.org:{}/f", web.address.port());
    let fetched = fetcher(lookup.clone()).fetch(&url, &web.rules(), &Never::default(), 10).await.unwrap();
    assert_eq!(fetched.host, "files.example.org");
    assert_eq!(lookup.asked(), 1);
    let host = format!("host: files.example.org:{}", web.address.port());
    assert!(web.asked.lock().unwrap()[0].to_lowercase().contains(&host));
}

#[tokio::test]
async fn fu_05_fu_07_one_bad_address_among_good_ones_spoils_them_all() {
    let web = Web::start(vec![ok("x")]).await;
    let url = format!("http://files.example.org:{}/f", web.address.port());
    for answers in
        [&["127.0.0.1", "10.0.0.1"][..], &["127.0.0.1", "::ffff:10.0.0.1"], &["127.0.0.1", "fd00::1"]]
    {
        let lookup = Fake::new(&[answers]);
        let error = fetcher(lookup).fetch(&url, &web.rules(), &Never::default(), 10).await.unwrap_err();
        assert_eq!(error.code(), "fetch_policy", "{answers:?}");
    }
    let none = fetcher(nobody()).fetch(&url, &web.rules(), &Never::default(), 10).await.unwrap_err();
    assert_eq!(none, FetchError::Lookup);
    assert!(web.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn fu_04_spellings_of_this_machine_are_refused_without_a_question() {
    let lookup = Fake::new(&[&["198.41.0.4"]]);
    let fetcher = fetcher(lookup.clone());
    let rules = Rules { ports: vec![80, 443], ..Rules::default() };
    for url in [
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://①②⑦.0.0.1/",
        "http://localhost./",
        "http://LOCALHOST/",
        "http://foo.localhost/",
        "http://[::ffff:7f00:1]/",
        "http://0.0.0.0/",
        "http://169.254.169.254/latest/meta-data/",
        "http://100.64.0.1/",
        "http://[fd00::1]/",
    ] {
        let error = fetcher.fetch(url, &rules, &Never::default(), 10).await.unwrap_err();
        assert_eq!(error.code(), "fetch_policy", "{url}");
    }
    for url in [
        "file:///etc/passwd",
        "ftp://h.example/",
        "gopher://h.example/",
        "data:,x",
        "http://user:pw@h.example/",
        "http://x@allowed.test:y@10.0.0.9/",
        "http://h.example:65536/",
        "http://",
        "nonsense",
    ] {
        let error = fetcher.fetch(url, &rules, &Never::default(), 10).await.unwrap_err();
        assert_eq!(error.code(), "fetch_url_refused", "{url}");
    }
    assert_eq!(lookup.asked(), 0);
}

// D12: a fragment ends the host for every parser.
#[tokio::test]
async fn d12_a_fragment_is_dropped_and_the_host_is_the_one_before_it() {
    let lookup = Fake::new(&[&["10.0.0.1"]]);
    let url = "http://allowed.test#@169.254.169.254/";
    let rules = Rules { ports: vec![80], ..Rules::default() };
    fetcher(lookup.clone()).fetch(url, &rules, &Never::default(), 10).await.unwrap_err();
    assert_eq!(lookup.asked(), 1, "the name was looked up, not the address behind the fragment");
    // D11: of two `@` parsers take the one or the other; none is taken.
    for url in ["http://x@allowed.test:y@10.0.0.9/", "http://allowed.test@10.0.0.9/"] {
        let refused = fetcher(lookup.clone()).fetch(url, &rules, &Never::default(), 10).await;
        assert!(refused.is_err(), "{url}");
    }
    assert_eq!(lookup.asked(), 1);
}

#[tokio::test]
async fn fu_08_every_redirect_is_vetted_anew() {
    for (location, code) in [
        ("http://169.254.169.254/", "fetch_policy"),
        ("http://127.0.0.1:1/", "fetch_policy"),
        ("http://localhost/", "fetch_policy"),
        ("file:///etc/passwd", "fetch_url_refused"),
        ("http://u:p@198.41.0.4/", "fetch_url_refused"),
        ("/a\\b", "fetch_url_refused"),
    ] {
        let web = Web::start(vec![to(location)]).await;
        assert_eq!(fetch(&web, "/").await.unwrap_err().code(), code, "{location}");
    }
    let web = Web::start(vec![to("/b"), to("/a"), to("/b")]).await;
    assert_eq!(fetch(&web, "/a").await.unwrap_err(), FetchError::Url(UrlRefusal::Circle));
    let hops = |count: usize| (1..=count).map(|n| to(&format!("/{n}"))).chain([ok("x")]).collect();
    let web = Web::start(hops(5)).await;
    fetch(&web, "/0").await.unwrap();
    let web = Web::start(hops(6)).await;
    assert_eq!(fetch(&web, "/0").await.unwrap_err(), FetchError::Url(UrlRefusal::TooManyRedirects));
}

#[tokio::test]
async fn fu_10_fu_20_what_is_never_reachable_is_so_by_address_name_and_own_port() {
    let web = Web::start(vec![ok("x")]).await;
    let by_address = Never { addresses: vec![web.address], ..Never::default() };
    let port = web.address.port();
    let by_name =
        Never { names: BTreeSet::from([("pve1.example.org".to_owned(), port)]), ..Never::default() };
    let own = Never { own_ports: vec![port], ..Never::default() };
    let lookup = || Fake::new(&[&["127.0.0.1"]]);
    for (never, url) in [
        (&by_address, web.url("/")),
        (&by_address, format!("http://other.example.org:{port}/")),
        (&by_name, format!("http://PVE1.example.org.:{port}/")),
        // Another name of the same machine.
        (&by_name, format!("http://alias.example.org:{port}/")),
        (&own, web.url("/")),
    ] {
        let error = fetcher(lookup()).fetch(&url, &web.rules(), never, 10).await.unwrap_err();
        assert_eq!(error, FetchError::Address(AddressRefusal::Own), "{url}");
    }
    assert!(web.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn d14_fu_11_fu_12_lengths_encodings_and_statuses() {
    let web = Web::start(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n".to_vec()]).await;
    assert_eq!(fetch(&web, "/").await.unwrap_err(), FetchError::TooLarge(1001, 1000));
    let gzip = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx".to_vec();
    assert_eq!(fetch(&Web::start(vec![gzip]).await, "/").await.unwrap_err(), FetchError::Encoded);
    for status in [204, 206, 304, 404, 500] {
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").into_bytes();
        let error = fetch(&Web::start(vec![answer]).await, "/").await.unwrap_err();
        assert_eq!(error, FetchError::Status(status));
    }
    // Says ten, sends five: an error at the body, never a short file.
    let short = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello".to_vec();
    let fetched = fetch(&Web::start(vec![short]).await, "/").await.unwrap();
    assert!(fetched.body.collect().await.is_err());
}

#[tokio::test]
async fn fu_13_heads_beyond_the_limits_are_no_http() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(10_000)).into_bytes();
    let large = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(1 << 20)).into_bytes();
    for answer in [many, large, b"hello".to_vec(), b"HTTP/0.9 200 OK\r\n\r\n".to_vec(), Vec::new()] {
        let error = fetch(&Web::start(vec![answer]).await, "/").await.unwrap_err();
        assert_eq!(error, FetchError::Protocol);
    }
}

#[tokio::test]
async fn fu_14_a_host_without_a_trusted_certificate_is_refused() {
    let web = Web::start(vec![b"not TLS at all".to_vec()]).await;
    let url = format!("https://{}/", web.address);
    let error = fetcher(nobody()).fetch(&url, &web.rules(), &Never::default(), 10).await.unwrap_err();
    assert_eq!(error, FetchError::Tls);
}

#[test]
fn c21_what_the_audit_keeps_of_a_url_has_no_credential() {
    let kept = for_audit("https://user:pw@h.example/p/f.bin?X-Amz-Signature=SECRET&token=T#frag");
    assert_eq!(kept, "https://h.example/p/f.bin?[removed]");
    assert_eq!(for_audit("nonsense"), "[not a URL]");
}
