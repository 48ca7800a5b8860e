export declare const SEARCH: { fields: string[]; storeFields: string[]; idField: string };
