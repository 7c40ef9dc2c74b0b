//! Handles a request: site, token, path, query, headers, body, then the operation on a worker
//! thread.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, get, on};
use axum::{RequestExt, Router};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use model::json;
use model::state::Problem;
use serde_json::Value;

use super::deadline::Patience;
use super::error::ApiError;
use super::handler::{ApiRequest, ApiResponse, carry_out};
use super::listen::Tcp;
use super::manager::Manager;
use super::metrics::Format;
use super::operation::{Operation, OperationKind, operations};
use super::token::Token;
use super::unauthenticated::Authenticated;
use super::worker::Worker;
use super::{MAX_BODY_BYTES, dashboard, openapi, origin};

/// Limit for receiving a body.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Headers of each response, if it has no others of these names: no browser shows an answer as
/// another type, gives it to another site's page, or keeps it.
const HEADERS: [(HeaderName, &str); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Router of all operations and of the dashboard. Over `tcp` each request for an operation must
/// present the token.
pub(super) fn router(manager: Arc<Mutex<Manager>>, worker: &Worker, tcp: Option<&Tcp>) -> Router {
    let document = Bytes::from(openapi::document().to_string());
    let mut router = Router::new();
    for operation in operations() {
        let filter =
            MethodFilter::try_from(operation.method.clone()).expect("a method of the table");
        let (manager, document) = (manager.clone(), document.clone());
        let worker = worker.clone();
        let operation = Arc::new(operation);
        let path = operation.path;
        let handler = move |request: Request| {
            let (manager, operation) = (manager.clone(), operation.clone());
            let served = serve(manager, worker.clone(), operation, document.clone(), request);
            async move { served.await.map_or_else(ApiError::into_response, ApiResponse::into_response) }
        };
        router = router.route(path, on(filter, handler));
    }
    for file in &dashboard::FILES {
        router = router.route(file.path, get(async move || file));
    }
    let router = router
        .fallback(async || ApiError::absent("this path", "see /openapi.json"))
        .method_not_allowed_fallback(async || ApiError::Method);
    let tls = tcp.is_some_and(|tcp| tcp.tls.is_some());
    let router = match tcp {
        Some(tcp) => with_token(router, tcp),
        None => router,
    };
    router.layer(from_fn(move |request: Request, next: Next| {
        let checked = origin::check(request.headers(), tls);
        async move {
            let mut response = match checked {
                Ok(()) => next.run(request).await,
                Err(error) => error.into_response(),
            };
            for (name, value) in HEADERS {
                let entry = response.headers_mut().entry(name);
                entry.or_insert(HeaderValue::from_static(value));
            }
            response
        }
    }))
}

/// Admits requests with the token, and those that need none: files of the dashboard, and with
/// `public_read` all that change nothing.
fn with_token(router: Router, tcp: &Tcp) -> Router {
    let (token, public_read) = (tcp.token.clone(), tcp.public_read);
    router.layer(from_fn(move |request: Request, next: Next| {
        let good = shows(request.headers(), &token);
        if let (true, Some(known)) = (good, request.extensions().get::<Authenticated>()) {
            known.set();
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_free = reads && (public_read || dashboard::is_file(request.uri().path()));
        async move {
            let mut response = if good || is_free { next.run(request).await } else { refused() };
            if !good {
                // A client without the token must not keep a connection.
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            response
        }
    }))
}

fn refused() -> Response {
    ApiError::Unauthorised.into_response()
}

fn shows(headers: &HeaderMap, token: &Token) -> bool {
    let shown = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    // RFC 6750: the scheme is case-insensitive.
    let shown =
        shown.filter(|value| value.len() > 7 && value[..7].eq_ignore_ascii_case(b"Bearer "));
    shown.is_some_and(|value| token.is(&value[7..]))
}

async fn serve(
    manager: Arc<Mutex<Manager>>,
    worker: Worker,
    operation: Arc<Operation>,
    document: Bytes,
    mut request: Request,
) -> Result<ApiResponse, ApiError> {
    let mut asked = ApiRequest::default();
    let patience = request.extensions().get::<Patience>().cloned();
    let keys = request.extract_parts::<RawPathParams>().await;
    let keys = keys.map_err(|_| bad("the path is not UTF-8", "write %-encoded UTF-8"))?;
    asked.keys = keys.iter().map(|(_, key)| key.to_owned()).collect();
    asked.peer = request.extensions().get().copied();
    asked.read_query(&operation, request.uri().query().unwrap_or_default())?;
    if let Some(Ok(accept)) = request.headers().get(header::ACCEPT).map(HeaderValue::to_str) {
        asked.format = Format::accepted(accept);
    }
    if operation.kind == OperationKind::OpenApi {
        return Ok(ApiResponse::ready(document));
    }
    if operation.changes() {
        asked.expected = expected(request.headers())?;
    }
    if operation.body.is_some() {
        must_be_json(request.headers())?;
        asked.body = body(request.into_body()).await?;
    }
    let is_capture = operation.kind == OperationKind::Capture;
    let work = move || carry_out(&manager, &operation, asked);
    let ended = || Err(ApiError::Broken("a bug in the daemon ended the request".into()));
    let response = worker.run(work).await.unwrap_or_else(ended)?;
    if let Some(patience) = patience.filter(|_| is_capture) {
        patience.set();
    }
    Ok(response)
}

fn bad(error: &str, allowed: &str) -> ApiError {
    ApiError::BadRequest(Problem::new("", (), error, allowed).into())
}

/// Generation in If-Match: an ETag of this API, or a star for any.
fn expected(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    let digits = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match digits.and_then(|digits| digits.parse().ok()) {
        Some(generation) => Ok(Some(generation)),
        None if text == "*" => Ok(None),
        None => Err(bad(
            "If-Match is not an ETag of this API",
            "send the ETag of a response, such as \"5\"",
        )),
    }
}

/// A body without a Content-Type counts as JSON.
fn must_be_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let known = ["application/json", "application/merge-patch+json"];
    let good = known.iter().any(|known| kind.eq_ignore_ascii_case(known));
    if good { Ok(()) } else { Err(ApiError::MediaType) }
}

async fn body(body: Body) -> Result<Value, ApiError> {
    let collected = Limited::new(body, MAX_BODY_BYTES).collect();
    let collected = tokio::time::timeout(BODY_TIME, collected).await.map_err(|_| ApiError::Slow)?;
    let bytes = match collected {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(ApiError::TooLarge),
        Err(_) => return Err(bad("the body broke off", "send it again")),
    };
    json::parse(&bytes).map_err(|error| ApiError::BadRequest(error.problem("the body ").into()))
}
