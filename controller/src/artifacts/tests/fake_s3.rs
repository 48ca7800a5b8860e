//! A fake S3 server with as much of the protocol as the artifact store uses: objects, ranges, multipart uploads, lists. It checks that requests
//! are signed, but not the signature.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use actix_web::http::{Method, StatusCode};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use bytes::Bytes;

/// Objects, and the parts of incomplete uploads.
#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Bytes>,
    uploads: BTreeMap<String, BTreeMap<u32, Bytes>>,
}

type Shared = web::Data<Mutex<Bucket>>;

/// Starts a server on a free port; it ends with the test's runtime.
pub(super) fn start() -> SocketAddr {
    let bucket: Shared = web::Data::new(Mutex::new(Bucket::default()));
    let server = HttpServer::new(move || {
        App::new()
            .app_data(bucket.clone())
            .app_data(web::PayloadConfig::new(64 << 20))
            .default_service(web::to(serve))
    })
    .workers(1)
    .disable_signals()
    .bind("127.0.0.1:0")
    .expect("a free port");
    let address = server.addrs()[0];
    tokio::spawn(server.run());
    address
}

fn signed(request: &HttpRequest) -> bool {
    let header = request
        .headers()
        .get("authorization")
        .and_then(|v| v.to_str().ok());
    header.is_some_and(|text| text.starts_with("AWS4-HMAC-SHA256 Credential=secret/"))
}

async fn serve(request: HttpRequest, body: Bytes, bucket: Shared) -> HttpResponse {
    let query: BTreeMap<String, String> = parse_query(request.query_string());
    let listed = query.get("prefix").map_or("", String::as_str);
    let key = request.path().to_owned();
    let own = key.starts_with("/artifacts/network-1/")
        || (key == "/artifacts" && listed.starts_with("network-1/"));
    if !signed(&request) || !own {
        return HttpResponse::Forbidden().finish();
    }
    let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
    if query.contains_key("list-type") {
        return HttpResponse::Ok().body(list(&bucket, listed));
    }
    match (
        request.method(),
        query.get("uploadId"),
        query.get("partNumber"),
    ) {
        (&Method::POST, None, _) => {
            let id = format!("upload-{}", bucket.uploads.len());
            let answer = format!(
                "<InitiateMultipartUploadResult><Bucket>artifacts</Bucket><Key>k</Key><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
            );
            bucket.uploads.insert(id, BTreeMap::new());
            HttpResponse::Ok().body(answer)
        }
        (&Method::PUT, Some(id), Some(part)) => {
            let part = part.parse().expect("a part number");
            bucket
                .uploads
                .get_mut(id)
                .expect("an upload")
                .insert(part, body);
            HttpResponse::Ok()
                .insert_header(("etag", format!("\"{part}\"")))
                .finish()
        }
        (&Method::POST, Some(id), _) => {
            let parts = bucket.uploads.remove(id).expect("an upload");
            let whole: Vec<u8> = parts.into_values().flatten().collect();
            bucket.objects.insert(key, whole.into());
            HttpResponse::Ok().body(
                "<CompleteMultipartUploadResult><ETag>\"whole\"</ETag></CompleteMultipartUploadResult>",
            )
        }
        (&Method::PUT, ..) => {
            bucket.objects.insert(key, body);
            HttpResponse::Ok()
                .insert_header(("etag", "\"object\""))
                .finish()
        }
        (&Method::DELETE, ..) => {
            bucket.objects.remove(&key);
            HttpResponse::NoContent().finish()
        }
        _ => match bucket.objects.get(&key) {
            Some(object) => read(&request, object),
            None => HttpResponse::NotFound().finish(),
        },
    }
}

/// The list response for the objects below a prefix.
fn list(bucket: &Bucket, prefix: &str) -> String {
    let all = bucket.objects.iter();
    let named = all.filter_map(|(path, body)| Some((path.strip_prefix("/artifacts/")?, body)));
    let found = named.filter(|(key, _)| key.starts_with(prefix));
    let contents: String = found
        .map(|(key, body)| {
            format!(
                "<Contents><Key>{key}</Key><LastModified>2026-11-21T08:00:00.000Z</LastModified><ETag>\"object\"</ETag><Size>{}</Size></Contents>",
                body.len()
            )
        })
        .collect();
    format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>")
}

/// The response to GET or HEAD of an object.
fn read(request: &HttpRequest, object: &Bytes) -> HttpResponse {
    let mut answer = HttpResponse::Ok();
    answer
        .insert_header(("etag", "\"object\""))
        .insert_header(("last-modified", "Sat, 21 Nov 2026 08:00:00 GMT"));
    if request.method() == Method::HEAD {
        return answer.no_chunking(object.len() as u64).body(object.clone());
    }
    let range = request.headers().get("range").and_then(|v| v.to_str().ok());
    let Some((start, last)) = range.and_then(|r| r.strip_prefix("bytes=")?.split_once('-')) else {
        return answer.body(object.clone());
    };
    let (start, last): (usize, usize) = (
        start.parse().expect("a number"),
        last.parse().expect("a number"),
    );
    answer
        .status(StatusCode::PARTIAL_CONTENT)
        .insert_header((
            "content-range",
            format!("bytes {start}-{last}/{}", object.len()),
        ))
        .body(object.slice(start..=last))
}

fn parse_query(query: &str) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}
