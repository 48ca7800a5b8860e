//! Limits concurrent requests to the number of possible connections, and the time that their bodies take. With HTTP/1 they cannot exceed that number
//! anyway; with HTTP/2 one connection can carry any number of requests, each of which may be a body that never arrives.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::Next;
use actix_web::{HttpMessage as _, web};
use tokio::sync::Semaphore;

use super::error::ApiError;
use super::pace::paced;
use crate::Error;

/// The `retry-after` of refused requests.
const LATER: Duration = Duration::from_secs(1);
/// The routes that need no permit: a controller that is busy must not look dead to whoever watches it.
const ALWAYS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The permits for concurrent requests, and how long their clients may be silent.
#[derive(Clone)]
pub(super) struct RequestPermits {
    places: Arc<Semaphore>,
    idle: Duration,
}

impl RequestPermits {
    /// At most `max` concurrent requests, whose clients may be silent for `idle` while they send.
    pub(super) fn new(max: usize, idle: Duration) -> Self {
        Self {
            places: Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))),
            idle,
        }
    }
}

/// The middleware: a request holds its permit until its response begins.
pub(super) async fn bound(
    mut request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let Some(requests) = request.app_data::<web::Data<RequestPermits>>().cloned() else {
        return Ok(next.call(request).await?.map_into_boxed_body());
    };
    let place = (!ALWAYS.contains(&request.path()))
        .then(|| Arc::clone(&requests.places).try_acquire_owned());
    let _place = match place.transpose() {
        Ok(place) => place,
        Err(_) => {
            let error = ApiError(Error::TooMany {
                what: "too many requests at once (api.max_connections)",
                after: LATER,
            });
            return Ok(request.error_response(error).map_into_boxed_body());
        }
    };
    let late = Rc::new(Cell::new(false));
    let payload = request.take_payload();
    if !matches!(payload, Payload::None) {
        request.set_payload(paced(payload, requests.idle, Rc::clone(&late)));
    }
    let response = next.call(request).await?;
    // Whatever read the body knows only that it broke off.
    if late.get() && response.status() == StatusCode::BAD_REQUEST {
        return Ok(response.error_response(ApiError(Error::SlowBody)));
    }
    Ok(response.map_into_boxed_body())
}

#[cfg(test)]
mod tests {
    use actix_web::error::PayloadError;
    use actix_web::{App, HttpResponse, middleware, test};
    use futures::StreamExt as _;

    use super::*;

    #[actix_web::test]
    async fn beyond_its_places_a_request_is_told_to_come_later() {
        let requests = RequestPermits::new(1, Duration::from_secs(30));
        let app = App::new()
            .app_data(web::Data::new(requests.clone()))
            .wrap(middleware::from_fn(bound))
            .route("/", web::get().to(HttpResponse::Ok))
            .route("/healthz", web::get().to(HttpResponse::Ok));
        let app = test::init_service(app).await;
        let ask = || test::TestRequest::get().uri("/").to_request();
        let other = requests.places.try_acquire().expect("free");
        let refused = test::call_service(&app, ask()).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers().get("retry-after").expect("told"), "1");
        let health = test::TestRequest::get().uri("/healthz").to_request();
        assert_eq!(test::call_service(&app, health).await.status(), 200);
        drop(other);
        assert_eq!(test::call_service(&app, ask()).await.status(), 200);
        assert_eq!(test::call_service(&app, ask()).await.status(), 200);
    }

    #[actix_web::test]
    async fn a_body_that_never_arrives_gives_its_place_back() {
        let requests = RequestPermits::new(1, Duration::from_millis(20));
        let read = |_: web::Bytes| async { HttpResponse::Ok().finish() };
        let app = App::new()
            .app_data(web::Data::new(requests.clone()))
            .wrap(middleware::from_fn(bound))
            .route("/", web::post().to(read));
        let app = test::init_service(app).await;
        let request = test::TestRequest::post().uri("/").to_request();
        let never = futures::stream::pending::<Result<web::Bytes, PayloadError>>();
        let never: Payload = Payload::from(never.boxed_local());
        let (request, _) = request.replace_payload(never);
        let given_up = test::call_service(&app, request).await;
        assert_eq!(given_up.status(), 400);
        let text = test::read_body(given_up).await;
        assert!(text.windows(8).any(|part| part == b"FDN-1011"), "{text:?}");
        assert_eq!(requests.places.available_permits(), 1);
    }
}
