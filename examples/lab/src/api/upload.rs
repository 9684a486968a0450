//! Uploads: a form of parts, of which the last is the file. The file is counted and hashed as it comes and kept nowhere.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use crate::api::reply::Refusal;
use crate::api::request::{Parameters, Raw};

/// The most bytes of the parts that are no file.
const MAX_FIELDS: usize = 64 * 1024;

/// The size of an uploaded file, and its checksums by the names of PVE.
pub(crate) type Uploaded = (u64, BTreeMap<&'static str, String>);

/// The boundary between the parts of a form, if the body is one.
pub(crate) fn boundary(headers: &http::HeaderMap) -> Option<String> {
    let full = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let (kind, rest) = full.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = rest.split(';').find_map(|part| part.trim().strip_prefix("boundary="))?;
    Some(boundary.trim_matches('"').to_owned())
}

/// The client left before all had come.
#[derive(Debug)]
pub(crate) struct Gone;

struct Sums(Sha224, Sha256, Sha384, Sha512, u64);

impl Sums {
    fn new() -> Sums {
        Sums(Sha224::new(), Sha256::new(), Sha384::new(), Sha512::new(), 0)
    }

    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
        self.1.update(bytes);
        self.2.update(bytes);
        self.3.update(bytes);
        self.4 += bytes.len() as u64;
    }

    fn finish(self) -> Uploaded {
        let hex = |bytes: &[u8]| data_encoding::HEXLOWER.encode(bytes);
        let sums = [
            ("sha224", hex(&self.0.finalize())),
            ("sha256", hex(&self.1.finalize())),
            ("sha384", hex(&self.2.finalize())),
            ("sha512", hex(&self.3.finalize())),
        ];
        (self.4, BTreeMap::from(sums))
    }
}

/// The body as it comes.
struct Stream {
    body: Incoming,
    buffer: BytesMut,
}

impl Stream {
    /// More bytes in the buffer; false at the end.
    async fn more(&mut self) -> Result<bool, Gone> {
        loop {
            match self.body.frame().await {
                None => return Ok(false),
                Some(Err(_)) => return Err(Gone),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        if data.is_empty() {
                            continue;
                        }
                        self.buffer.extend_from_slice(&data);
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// Everything up to a mark, which is taken too. `None` when the body ends or `limit` is passed before.
    async fn until(&mut self, mark: &[u8], limit: usize) -> Result<Option<Bytes>, Gone> {
        loop {
            if let Some(at) = position(&self.buffer, mark) {
                let found = self.buffer.split_to(at).freeze();
                self.buffer.advance(mark.len());
                return Ok(Some(found));
            }
            if self.buffer.len() > limit || !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// Feeds a file part up to its mark; false when the body ends before.
    async fn file(&mut self, mark: &[u8], sums: &mut Sums) -> Result<bool, Gone> {
        loop {
            if let Some(at) = position(&self.buffer, mark) {
                sums.update(&self.buffer.split_to(at));
                return Ok(true);
            }
            // The end may be the beginning of the mark.
            let sure = self.buffer.len().saturating_sub(mark.len());
            sums.update(&self.buffer.split_to(sure));
            if !self.more().await? {
                return Ok(false);
            }
        }
    }
}

fn position(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Reads the parts. Fields that come after the file are not seen, as by PVE.
pub(crate) async fn read(
    body: Incoming,
    boundary: &str,
) -> Result<Result<(Parameters, Option<Uploaded>), Refusal>, Gone> {
    let wrong = || Refusal::Bare(501, "upload failed - malformed multipart body".to_owned());
    let mut stream = Stream { body, buffer: BytesMut::new() };
    let mut parameters = Parameters::new();
    let mut fields = 0;
    let opening = format!("--{boundary}");
    if stream.until(opening.as_bytes(), MAX_FIELDS).await?.is_none() {
        return Ok(Err(wrong()));
    }
    let mark = format!("\r\n--{boundary}");
    loop {
        let Some(head) = stream.until(b"\r\n\r\n", MAX_FIELDS).await? else {
            // What is left is the end of the form, without a file.
            return Ok(Ok((parameters, None)));
        };
        let head = String::from_utf8_lossy(&head).into_owned();
        let attribute = |name: &str| {
            let wanted = format!("{name}=\"");
            head.split(';').find_map(|part| part.trim().strip_prefix(wanted.as_str())?.split('"').next())
        };
        let name = attribute("name").unwrap_or_default().to_owned();
        if let Some(file) = attribute("filename") {
            if name != "filename" {
                let text = format!("wrong field name '{name}' for file upload");
                return Ok(Err(Refusal::Bare(501, text)));
            }
            parameters.insert("filename".to_owned(), Raw::Text(file.to_owned()));
            let mut sums = Sums::new();
            if !stream.file(mark.as_bytes(), &mut sums).await? {
                return Ok(Err(wrong()));
            }
            while stream.more().await? {
                stream.buffer.clear();
            }
            return Ok(Ok((parameters, Some(sums.finish()))));
        }
        let Some(value) = stream.until(mark.as_bytes(), MAX_FIELDS).await? else { return Ok(Err(wrong())) };
        fields += value.len();
        if fields > MAX_FIELDS {
            return Ok(Err(wrong()));
        }
        parameters.insert(name, Raw::Text(String::from_utf8_lossy(&value).into_owned()));
    }
}
