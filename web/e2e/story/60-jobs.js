// A job is submitted, ends, and shows its result; a schedule is set, paused and removed.

export async function run({ page }) {
  await page.goto("/jobs?app=hello");
  await page.getByRole("button", { name: "Submit a job" }).first().click();
  await page.getByLabel("Input as text").fill("job");
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.waitForURL(/\/jobs\/job_/);
  await page.getByRole("heading", { name: "Job of hello" }).waitFor();
  await page.getByText("hello, job").waitFor();
  await page.getByText("Attempt 1 ended: succeeded, status 200").waitFor();
  await page.getByText("Ended: succeeded, status 200", { exact: true }).waitFor();
  await page.goto("/jobs?state=succeeded");
  await page.getByRole("row", { name: /succeeded/ }).first().waitFor();

  await page.goto("/jobs/schedules");
  await page.getByRole("button", { name: "New schedule" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("App").selectOption("hello");
  await dialog.getByLabel("Name").fill("weekly");
  await dialog.getByLabel("Expression").fill("0 0 * * 1");
  await dialog.getByRole("button", { name: "Set the schedule" }).click();
  await page.getByRole("button", { name: "Pause weekly" }).click();
  await page.getByRole("button", { name: "Resume weekly" }).waitFor();
  await page.getByRole("button", { name: "Remove weekly" }).click();
  await page.getByRole("button", { name: "Remove it" }).click();
  await page.getByText("Schedule weekly was removed").waitFor();
}
