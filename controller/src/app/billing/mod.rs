//! Billing: statements, usage views, price lists, budgets, and the loop that closes months and raises alerts.

pub mod bill;
pub mod budgets;
pub mod prices;
pub mod rounds;
