//! An outage of the database: refusals say so, and everything continues by itself afterwards.

use fdn_core::api::{AppDetail, AppSummary};
use fdn_testkit::postgres::PostgresServer;
use fdn_testkit::{components, wait};
use reqwest::Method;

use crate::rig::{Backend, Rig};

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_dies_and_returns_loses_nothing() {
    let mut server = PostgresServer::start()
        .await
        .expect("PostgreSQL must be installed for this test");
    let url = server.database().expect("a database").url;
    let rig = Rig::start_with(Backend::Sqlite, |settings| {
        settings.database.url = url;
        settings.database.acquire_timeout = fdn_core::DurationMs::from_secs(3);
    })
    .await;
    rig.two_regions().await;
    rig.deploy("before", components::hello("before")).await;

    server.kill();
    let (status, problem) = rig.refused(rig.request(Method::GET, "/v1/apps")).await;
    assert_eq!((status.as_u16(), problem.code.as_str()), (503, "FDN-4001"));
    let upload = rig.upload("meanwhile", components::hello("x"), None, None);
    assert_eq!(rig.refused(upload).await.1.code.as_str(), "FDN-4001");
    wait::until("readiness to be withdrawn", async || {
        let answer = rig
            .anonymous(Method::GET, "/readyz")
            .send()
            .await
            .map_err(|e| e.to_string())?;
        if answer.status() == 503 {
            Ok(())
        } else {
            Err("still ready".to_owned())
        }
    })
    .await;
    let alive = rig
        .anonymous(Method::GET, "/healthz")
        .send()
        .await
        .expect("an answer");
    assert_eq!(alive.status(), 200);

    server.restart().await.expect("restarted");
    wait::until("the API to answer again", async || {
        let answer = rig
            .request(Method::GET, "/v1/apps")
            .send()
            .await
            .map_err(|e| e.to_string())?;
        if answer.status() == 200 {
            Ok(())
        } else {
            Err(answer.status().to_string())
        }
    })
    .await;
    let apps: Vec<AppSummary> = rig.get("/v1/apps").await;
    let names: Vec<&str> = apps.iter().map(|app| app.app.as_str()).collect();
    assert_eq!(names, ["before"], "what was refused was not half done");
    rig.deploy("after", components::hello("after")).await;
    let detail: AppDetail = rig.get("/v1/apps/after").await;
    assert_eq!(detail.bindings.len(), 2);
    wait::until("readiness", async || {
        let answer = rig
            .anonymous(Method::GET, "/readyz")
            .send()
            .await
            .map_err(|e| e.to_string())?;
        if answer.status() == 200 {
            Ok(())
        } else {
            Err(answer.text().await.unwrap_or_default())
        }
    })
    .await;
}
