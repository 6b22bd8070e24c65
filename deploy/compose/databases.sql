-- Run once by the postgres image, in an empty volume; the database plt, for studies, is the image's POSTGRES_DB.
CREATE DATABASE mlflow;
CREATE DATABASE mlflow_users;
