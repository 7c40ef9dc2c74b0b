//! An API server of nothing but objects in memory: reads, lists with field selectors, server-side
//! apply of a whole `spec` or `status`, deletion, and a watch that says what there is and ends.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Objects by plural, namespace and name; the namespace of those without one is empty.
type Objects = BTreeMap<(String, String, String), Value>;

#[derive(Default)]
struct Contents {
    objects: Objects,
    writes: Vec<String>,
    is_down: bool,
}

/// The server; its thread ends with the process.
#[derive(Clone, Default)]
pub(crate) struct ApiServer {
    contents: Arc<Mutex<Contents>>,
    pub(crate) port: u16,
}

impl ApiServer {
    pub(crate) fn start() -> ApiServer {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = ApiServer { contents: Arc::default(), port };
        let served = server.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let served = served.clone();
                    let service = hyper::service::service_fn(move |request| {
                        let served = served.clone();
                        async move { served.serve(request).await }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
                }
            });
        });
        server
    }

    pub(crate) fn put(&self, plural: &str, object: Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or("").to_owned();
        let key = (plural.to_owned(), text("namespace"), text("name"));
        self.contents.lock().unwrap().objects.insert(key, object);
    }

    pub(crate) fn remove(&self, plural: &str, namespace: &str, name: &str) {
        let key = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        self.contents.lock().unwrap().objects.remove(&key);
    }

    pub(crate) fn all(&self, plural: &str) -> Vec<Value> {
        let contents = self.contents.lock().unwrap();
        let of = contents.objects.iter().filter(|((it, ..), _)| it == plural);
        of.map(|(_, object)| object.clone()).collect()
    }

    /// Paths that were written to since the last call.
    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.contents.lock().unwrap().writes)
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.contents.lock().unwrap().is_down = is_down;
    }

    async fn serve(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let method = request.method().clone();
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let accept = request.headers().get("accept").map(|it| it.to_str().unwrap().to_owned());
        let is_metadata = accept.is_some_and(|it| it.contains("PartialObjectMetadata"));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let (status, mut answer) = self.answer(&method, &path, &query, &body);
        if is_metadata && status == StatusCode::OK {
            let bare = |it: &Value| json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": it["metadata"]});
            answer = match answer["items"].as_array() {
                Some(items) => {
                    let items: Vec<Value> = items.iter().map(bare).collect();
                    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items})
                }
                None => bare(&answer),
            };
        }
        let mut text = answer.to_string();
        if query.contains("watch=true") && status == StatusCode::OK {
            let items = answer["items"].as_array().into_iter().flatten();
            text = items
                .map(|it| format!("{}\n", json!({"type": "MODIFIED", "object": it})))
                .collect();
        }
        let response =
            Response::builder().status(status).header("content-type", "application/json");
        Ok(response.body(Full::new(Bytes::from(text))).unwrap())
    }

    fn answer(&self, method: &Method, path: &str, query: &str, body: &[u8]) -> (StatusCode, Value) {
        let mut contents = self.contents.lock().unwrap();
        let fails = |status: StatusCode| {
            let answer = json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "metadata": {},
                "code": status.as_u16(), "reason": status.canonical_reason().unwrap().replace(' ', ""), "message": format!("{method} {path}: {status}"),
            });
            (status, answer)
        };
        if contents.is_down {
            return fails(StatusCode::SERVICE_UNAVAILABLE);
        }
        let parts: Vec<&str> = path.split('/').skip_while(|it| *it != "v1").skip(1).collect();
        let (namespace, rest) = match &parts[..] {
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        if *method != Method::GET {
            contents.writes.push(format!("{method} {path}"));
        }
        let (plural, name) = match rest {
            [plural] => {
                let wanted = selector(query);
                let is_of = |((kind, within, _), object): &(&(String, String, String), &Value)| {
                    kind == plural
                        && (namespace.is_empty() || within == namespace)
                        && wanted.iter().all(|(field, value)| field_of(object, field) == *value)
                };
                let of = contents.objects.iter().filter(is_of).map(|(_, object)| object.clone());
                let items: Vec<Value> = of.collect();
                return (
                    StatusCode::OK,
                    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}),
                );
            }
            [plural, name, ..] => (*plural, *name),
            [] => return fails(StatusCode::NOT_FOUND),
        };
        let key = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        let before = contents.objects.get(&key).cloned();
        match *method {
            Method::PATCH => {
                let given: Value = serde_json::from_slice(body).unwrap();
                assert!(query.contains("fieldManager=shunt-agent"), "{query}");
                let is_status = rest.get(2) == Some(&"status");
                let uid = given["metadata"].get("uid");
                let mut object = match before {
                    Some(before) if uid.is_none_or(|uid| before["metadata"]["uid"] == *uid) => {
                        before
                    }
                    Some(_) => return fails(StatusCode::CONFLICT),
                    None if is_status => return fails(StatusCode::NOT_FOUND),
                    None => given.clone(),
                };
                if is_status {
                    object["status"]["devices"] = given["status"]["devices"].clone();
                } else {
                    object["spec"] = given["spec"].clone();
                    stamp_taints(&mut object);
                }
                contents.objects.insert(key, object.clone());
                (StatusCode::OK, object)
            }
            Method::DELETE => {
                contents.objects.remove(&key);
                before.map_or_else(|| fails(StatusCode::NOT_FOUND), |it| (StatusCode::OK, it))
            }
            _ => before.map_or_else(|| fails(StatusCode::NOT_FOUND), |it| (StatusCode::OK, it)),
        }
    }
}

/// Adds the time to taints, as an API server does.
fn stamp_taints(slice: &mut Value) {
    for device in slice["spec"]["devices"].as_array_mut().into_iter().flatten() {
        for taint in device.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten() {
            taint["timeAdded"] = json!("2026-01-01T00:00:00Z");
        }
    }
}

/// Fields and values of a field selector.
fn selector(query: &str) -> Vec<(String, String)> {
    let query = query.replace("%3D", "=").replace("%2C", ",");
    let selector = query.split('&').find_map(|it| it.strip_prefix("fieldSelector="));
    let pairs = selector.unwrap_or_default().split(',').filter_map(|it| it.split_once('='));
    pairs.map(|(field, value)| (field.to_owned(), value.to_owned())).collect()
}

fn field_of(object: &Value, field: &str) -> String {
    let value = field.split('.').fold(object, |it, name| &it[name]);
    value.as_str().unwrap_or_default().to_owned()
}
