// What a search finds by: the same where the index is made and where it is read.

/** Fields that are searched, fields that are shown, and the field that names a section. */
export const SEARCH = { fields: ["title", "heading", "text"], storeFields: ["href", "title", "heading", "start"], idField: "href" };
