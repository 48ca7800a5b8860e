//! Limits concurrent requests to the number of possible connections. With HTTP/1 they cannot exceed it anyway; with HTTP/2 one connection can carry
//! any number of requests, each of which may be a body that never arrives.

use std::sync::Arc;
use std::time::Duration;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web;
use tokio::sync::Semaphore;

use super::error::ApiError;
use crate::Error;

/// The `retry-after` of refused requests.
const LATER: Duration = Duration::from_secs(1);

/// The permits for concurrent requests.
#[derive(Clone)]
pub(super) struct RequestPermits(Arc<Semaphore>);

impl RequestPermits {
    /// At most `max` concurrent requests.
    pub(super) fn new(max: usize) -> Self {
        Self(Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))))
    }
}

/// The middleware: a request holds its permit until its response begins.
pub(super) async fn bound(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, actix_web::Error> {
    let requests = request.app_data::<web::Data<RequestPermits>>().cloned();
    let place = requests.map(|requests| Arc::clone(&requests.0).try_acquire_owned());
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
    Ok(next.call(request).await?.map_into_boxed_body())
}

#[cfg(test)]
mod tests {
    use actix_web::{App, HttpResponse, middleware, test};

    use super::*;

    #[actix_web::test]
    async fn beyond_its_places_a_request_is_told_to_come_later() {
        let requests = RequestPermits::new(1);
        let app = App::new()
            .app_data(web::Data::new(requests.clone()))
            .wrap(middleware::from_fn(bound))
            .route("/", web::get().to(HttpResponse::Ok));
        let app = test::init_service(app).await;
        let ask = || test::TestRequest::get().uri("/").to_request();
        let other = requests.0.try_acquire().expect("free");
        let refused = test::call_service(&app, ask()).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers().get("retry-after").expect("told"), "1");
        drop(other);
        assert_eq!(test::call_service(&app, ask()).await.status(), 200);
        assert_eq!(test::call_service(&app, ask()).await.status(), 200);
    }
}
