//! Apps that cannot be planned, or whose plans cannot be written: each is logged once and left as it is, and the others go on.

use fdn_core::AppName;
use tracing::{info, warn};

use super::Planner;
use crate::Error;
use crate::store::StoreError;

impl Planner {
    /// Logs once why an app cannot be placed.
    pub(super) fn warn_unplaced(&mut self, app: &AppName, unplaced: &[String]) {
        let Some(reason) = unplaced.first() else {
            if self.warned.remove(app).is_some() {
                info!(%app, "can be placed again");
            }
            return;
        };
        if self.warned.get(app) != Some(reason) {
            warn!(%app, reason, "cannot be placed; clients stay where they are");
            self.warned.insert(app.clone(), reason.clone());
        }
    }

    /// Logs once why the plans of an app cannot be written, if that is because of the app; returns all other errors.
    pub(super) fn pass_over(
        &mut self,
        app: &AppName,
        written: Result<(), Error>,
    ) -> Result<(), Error> {
        match written {
            Ok(()) => {
                if self.unwritten.remove(app).is_some() {
                    info!(%app, "plans can be written again");
                }
                Ok(())
            }
            Err(error) if is_of_one_app(&error) => {
                let reason = error.to_string();
                if self.unwritten.get(app) != Some(&reason) {
                    warn!(%app, reason, "plans cannot be written; clients stay where they are");
                    self.unwritten.insert(app.clone(), reason);
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether an error is due to the rows of one app rather than to the database as a whole.
const fn is_of_one_app(error: &Error) -> bool {
    matches!(
        error,
        Error::Placement(_) | Error::Store(StoreError::Corrupt { .. })
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wrong_with_one_app_is_passed_over() {
        let corrupt = StoreError::corrupt("plans.explanation", "not a number");
        assert!(is_of_one_app(&Error::Store(corrupt)));
        let away = StoreError::Away(sqlx::Error::PoolTimedOut);
        assert!(!is_of_one_app(&Error::Store(away)));
        assert!(!is_of_one_app(&Error::Store(StoreError::Overtaken)));
    }
}
